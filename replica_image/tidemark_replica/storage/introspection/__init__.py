"""The operator's knowledge of a namespace as tables.

    WriteRows (replace) ──► contents: one document with the rows of all relations ──► slot: the newest one
                                                                                       │
    ingestion's thread:  discover ◄── take ────────────────────────────────────────────┘
                         source: what a table has ─► difference ─► staged file ─► binding of all tables

Nothing is remembered of a document but what the tables have, so it may come twice, or be lost. Read `contents.py`
first.
"""
