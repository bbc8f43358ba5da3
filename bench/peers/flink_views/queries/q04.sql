SELECT category, avg(CAST(final AS double)) AS price
FROM (
  SELECT a.id, a.category, max(b.price) AS final FROM nexmark.auction a JOIN nexmark.bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category
