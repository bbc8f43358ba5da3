"""Shards as the replica uses them: shared handles and polled frontiers (`shards.py`), and whether the object store
answers (`store_watch.py`)."""
