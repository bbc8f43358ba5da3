"""PostgreSQL as a source: contents at the position of a replication slot, and from there every transaction.

    catalogue ──relations──► tables, checked and pinned
    snapshot  ──COPY──► text_values ──► staged files ──┐
                                                       ├──► binding: positions + staged files (source, positions)
    stream    ──tick──► tuples ──► text_values ──► ... ┘
                 ├─ connection (replication), pgoutput (messages), changes (one table's)
                 └─ keyed, where changes name rows by a key

Read `source.py` first, then `tick.py` and `snapshot.py`; `watch.py` is for what the stream does not tell.
"""
