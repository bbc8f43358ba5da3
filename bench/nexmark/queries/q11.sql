-- The sessions of each bidder: bids that are less than 10 seconds apart.
WITH marked AS (
  SELECT bidder, date_time,
    CASE WHEN date_time < lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) + INTERVAL '10' SECOND
      THEN 0 ELSE 1 END AS begins
  FROM nexmark.bid
),
numbered AS (
  SELECT bidder, date_time, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time) AS session FROM marked
)
SELECT bidder, count(*) AS bids, min(date_time) AS started, max(date_time) + INTERVAL '10' SECOND AS ended
FROM numbered GROUP BY bidder, session
