"""Durable collections (shards) on Delta Lake: compare-and-append, snapshot, listen, compaction."""
