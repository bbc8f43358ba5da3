"""Tables by key: records are changes of rows.

    records ──opened.py, or debezium.py──► rows without envelopes ──records.py──► changes ──keyed_rows──► updates
                                                                          └──errors.py──► errors by key

Read `records.py` first.
"""
