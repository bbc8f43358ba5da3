"""Peeks: reads of an index or a shard at one time. Read `peek_queue.py` (from the command to the answer), then
`peek_reader.py` and `collection_reader.py` (how rows are read), `result_finishing.py` (order and limit), and
`result_stash.py` (answers too large for a message)."""
