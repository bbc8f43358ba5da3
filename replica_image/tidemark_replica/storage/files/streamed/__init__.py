"""Files that Spark cannot open itself, streamed by its tasks: archives, and objects of a bucket. Read `pieces.py`, then
`text_pieces.py` and `parquet_pieces.py`."""
