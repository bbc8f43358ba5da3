"""TPC-H as a source: tpchgen-cli's data first (`initial.py`), then a definite stream of order transactions
(`transactions.py`)."""
