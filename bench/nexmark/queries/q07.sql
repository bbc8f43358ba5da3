-- The highest bids of each 10 seconds.
WITH highest AS (
  SELECT max(price) AS price, timestamp_seconds(unix_seconds(date_time) - unix_seconds(date_time) % 10 + 10) AS window_end
  FROM nexmark.bid GROUP BY 2
)
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM nexmark.bid b JOIN highest h ON b.price = h.price
WHERE b.date_time BETWEEN h.window_end - INTERVAL '10' SECOND AND h.window_end
