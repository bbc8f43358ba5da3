"""Frontiers, read holds and ends of shards and exports: who reads what, and what may be compacted."""
