WITH highest AS (
  SELECT max(price) AS price, window_end
  FROM (
    SELECT price, TIMESTAMPADD(SECOND, `second` - MOD(`second`, 10) + 10, TIMESTAMP '1970-01-01 00:00:00') AS window_end
    FROM (SELECT price, TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', date_time) AS `second` FROM nexmark.bid)
  )
  GROUP BY window_end
)
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM nexmark.bid b JOIN highest h ON b.price = h.price
WHERE b.date_time BETWEEN h.window_end - INTERVAL '10' SECOND AND h.window_end
