WITH people AS (
  SELECT DISTINCT id, name, TIMESTAMPADD(SECOND, `second` - MOD(`second`, 10), TIMESTAMP '1970-01-01 00:00:00') AS window_start
  FROM (
    SELECT id, name, TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', date_time) AS `second` FROM nexmark.person
  )
),
sellers AS (
  SELECT DISTINCT seller, TIMESTAMPADD(SECOND, `second` - MOD(`second`, 10), TIMESTAMP '1970-01-01 00:00:00') AS window_start
  FROM (
    SELECT seller, TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', date_time) AS `second` FROM nexmark.auction
  )
)
SELECT p.id, p.name, p.window_start FROM people p JOIN sellers s ON p.id = s.seller AND p.window_start = s.window_start
