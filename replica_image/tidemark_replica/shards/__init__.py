"""Shards as the replica sees them, and whether their object store answers."""
