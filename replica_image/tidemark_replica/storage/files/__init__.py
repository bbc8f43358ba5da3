"""Files as a source: CSV and JSON lines (also compressed) and Parquet. Each file is read once and whole, or not at all.
Read `source.py` first, then `file_store.py`, `listing.py`, `checks.py`, `reading.py` and `text_pieces.py`."""
