"""Transactions of the database behind Debezium's topics: a binding has whole ones, across partitions and tables.

    topic of transactions   BEGIN 7   END 7: items 2, orders 1   BEGIN 8 ...
    topic items, part. 0    7 7 │ 8
    topic items, part. 1        │ 8 8        the cut after transaction 7: an offset for each partition
    topic orders            7   │

Debezium writes transactions one after the other, so a cut after one of them is an offset of each partition. After a
restart it writes some of them again: records that were acknowledged before are there, in the order in which they were
written to their partition. All of this holds for PostgreSQL's connector; others are refused.

    metadata.py          what events say
    log.py               the topic of transactions
    event_positions.py   which events come again
    read_ahead.py        records of one table that wait
    cuts.py              which transactions are whole, and where the cut is
    fronts.py            for which transactions partitions wait
    undecided.py         what bindings remember of transactions whose counts meant nothing
"""
