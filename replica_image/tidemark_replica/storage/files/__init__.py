"""Files as a source, in folders and buckets: CSV and JSON lines (also compressed), Parquet and Avro. Each file is read
once and whole, or not at all. Read `source.py` first, then `file_store.py`, `arrivals.py`, `checks.py`, `reading.py`
and `streamed`."""
