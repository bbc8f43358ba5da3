WITH hops AS (
  SELECT auction, `second` - earlier AS `start`
  FROM (
    SELECT auction, `second` - MOD(`second`, 2) AS `second`
    FROM (SELECT auction, TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', date_time) AS `second` FROM nexmark.bid)
  )
  CROSS JOIN UNNEST(ARRAY[0, 2, 4, 6, 8]) AS o(earlier)
),
counts AS (SELECT auction, `start`, count(*) AS num FROM hops GROUP BY auction, `start`),
most AS (SELECT `start`, max(num) AS num FROM counts GROUP BY `start`)
SELECT c.auction, c.num, TIMESTAMPADD(SECOND, c.`start`, TIMESTAMP '1970-01-01 00:00:00') AS window_start
FROM counts c JOIN most m ON c.`start` = m.`start` WHERE c.num >= m.num
