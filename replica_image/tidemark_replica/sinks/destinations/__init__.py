"""Where a view's rows go beside its shard. Read `destination.py` (what each kind does) and `publisher.py` (when)."""
