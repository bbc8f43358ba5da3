-- The auctions with the most bids in each 10 seconds, every 2 seconds.
WITH hops AS (
  SELECT auction, unix_seconds(date_time) - unix_seconds(date_time) % 2 AS second, explode(sequence(0, 8, 2)) AS before
  FROM nexmark.bid
),
counts AS (SELECT auction, second - before AS start, count(*) AS num FROM hops GROUP BY auction, second - before),
most AS (SELECT start, max(num) AS num FROM counts GROUP BY start)
SELECT c.auction, c.num, timestamp_seconds(c.start) AS window_start FROM counts c JOIN most m ON c.start = m.start
WHERE c.num >= m.num
