-- Bids, each with its value of a bounded side input.
WITH side_input AS (SELECT id AS key, CAST(id AS string) AS value FROM range(10000) AS r(id))
SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM nexmark.bid b JOIN side_input s ON b.auction % 10000 = s.key
