"""Where a view's rows go beside its shard. Read `destination.py` (what each kind does), `publisher.py` (when), and
`backup_check.py` (whether a backup was put in the shard's place before)."""
