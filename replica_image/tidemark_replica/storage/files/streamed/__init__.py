"""Files that Spark cannot open itself, streamed by its tasks: archives, Avro, and objects of a bucket. Read
`pieces.py`, then `text_pieces.py`, `parquet_pieces.py` and `avro_pieces.py`."""
