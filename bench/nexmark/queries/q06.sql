-- The mean of the winning prices of each seller's last auctions: each with the ten before it.
WITH winning AS (
  SELECT a.id, a.seller, b.price, b.date_time
  FROM nexmark.auction a JOIN nexmark.bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) = 1
)
SELECT seller, id,
  avg(price) OVER (PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price
FROM winning
