"""Tables whose rows clients write: one call is one transaction at one time.

    WriteRows ──► receive: body in scratch ──► decode: checked Arrow rows ──► inbox ──► (waits for its tick)
                                                                               │
    ingestion's thread:  discover ◄── take ────────────────────────────────────┘
                         transaction: rows and contents ─► updates, or a refusal ─► staged files
                         binding: staged files and keys ─► minted ─► appended ─► inbox answers the calls

Nothing is durable before the binding is minted, and nothing but the binding and its staged files is needed after it.
Read `source.py` first, then `contents.py`, `transaction.py`, `inbox.py`, `receive.py` (`bodies.py`: of several tables),
`decode.py` (the formats), and `generations.py` (columns that were added). Rows that are there already are found by
`keyed_rows/scan.py`.
"""
