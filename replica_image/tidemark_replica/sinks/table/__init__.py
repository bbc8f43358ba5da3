"""Sinks that write shards. Read `materialized_view.py` first, then `shard_updates.py` (the rows of an append),
`continual_task.py`, and `refresh_progress.py` with `refresh_times.py` (views with a refresh schedule)."""
