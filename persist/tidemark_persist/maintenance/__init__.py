"""The maintenance of a shard: compaction, vacuum, and the leases of readers that vacuum respects."""
