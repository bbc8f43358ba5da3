-- People of three states who sell in category 10.
SELECT p.name, p.city, p.state, a.id FROM nexmark.auction a JOIN nexmark.person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
