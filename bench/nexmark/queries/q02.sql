-- Bids for some auctions.
SELECT auction, price FROM nexmark.bid WHERE auction % 123 = 0
