SELECT b.auction, b.bidder, b.price, b.date_time, CAST(s.id AS string) AS `value`
FROM nexmark.bid b JOIN side_input s ON MOD(b.auction, 10000) = s.id
