"""The rows of a table by key. A change takes back the row that its key has; that row is found in the table's own shard,
so nothing else is durable.

    changes, in order ──► the last one of each key ──► -1 the row before, +1 the new row ──► staged file of the tick
                                     ▲
            table.py ──► index.py: rows by hash of the key, in scratch, built from the shard once, then kept
            scan.py:     one reading of the shard's files, where keys are few and tables small

`table.py` is the way in for sources that follow upstream; written tables use `scan.py`. `changes.py` is pure.
`unique.py` checks tables whose rows are not changed by key.
"""
