-- People who came and opened an auction in the same 10 seconds.
WITH people AS (
  SELECT DISTINCT id, name, timestamp_seconds(unix_seconds(date_time) - unix_seconds(date_time) % 10) AS window_start
  FROM nexmark.person
),
sellers AS (
  SELECT DISTINCT seller, timestamp_seconds(unix_seconds(date_time) - unix_seconds(date_time) % 10) AS window_start
  FROM nexmark.auction
)
SELECT p.id, p.name, p.window_start FROM people p JOIN sellers s ON p.id = s.seller AND p.window_start = s.window_start
