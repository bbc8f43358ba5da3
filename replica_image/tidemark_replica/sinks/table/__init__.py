"""Sinks that write shards: materialized views and continual tasks."""
