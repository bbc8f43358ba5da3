-- Every bid.
SELECT auction, bidder, price, date_time, extra FROM nexmark.bid
