SELECT auction, bidder, price, channel, url, date_time, extra, place
FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder, extra) AS place
  FROM nexmark.bid
)
WHERE place <= 10
