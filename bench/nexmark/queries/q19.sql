-- The ten highest bids for each auction, with their places.
SELECT auction, bidder, price, channel, url, date_time, extra,
  row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder, extra) AS place
FROM nexmark.bid QUALIFY place <= 10
