"""Files in directories as a source: CSV, JSON lines and Parquet. Each file is read once and whole, or not at all. Read
`source.py` first, then `listing.py`, `checks.py` and `reading.py`."""
