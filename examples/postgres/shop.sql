-- Run upstream as a superuser, in the database that has the tables (wal_level = logical).
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customers, amount numeric(10,2) NOT NULL);
INSERT INTO customers VALUES (1, 'ann'), (2, 'bob'), (3, 'eve');
INSERT INTO orders SELECT g, 1 + g % 3, g FROM generate_series(1, 6) g;

-- what the source needs
CREATE PUBLICATION tidemark FOR TABLE customers, orders;
CREATE ROLE tidemark LOGIN REPLICATION PASSWORD 'change-me';
GRANT SELECT ON customers, orders TO tidemark;
