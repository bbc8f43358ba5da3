"""Handles on shards, shared within a process: one for each location, so that its log is followed once.

Shards are opened outside the lock: a store that hangs delays only callers that open a shard there.
"""

from __future__ import annotations

from threading import Lock

import pyarrow as pa

from tidemark_persist.errors import ShardMismatch
from tidemark_persist.schema import physical_schema, user_schema
from tidemark_persist.shard import Shard, create_or_open


class ShardWriters:
    """The handles of a process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._shards: dict[str, Shard] = {}

    def open(self, location: str, schema: pa.Schema, *, shard_id: str) -> Shard:
        """The shard, created if there is none. The same handle each time, unless the shard of that handle was another
        owner's. Raises ShardMismatch."""
        location = location.rstrip("/")
        with self._lock:
            known = self._shards.get(location)
        if known is None or known.shard_id != shard_id:
            opened = create_or_open(location, schema, shard_id=shard_id)
            with self._lock:
                if self._shards.get(location) is known:
                    self._shards[location] = opened
                known = self._shards.get(location, opened)
        if known.shard_id != shard_id or not known.schema.equals(user_schema(physical_schema(schema))):
            raise ShardMismatch(f"shard {location} is open as {known.shard_id!r} with {known.schema}")
        return known

    def forget(self, location: str) -> None:
        """Drop the handle of a shard that is deleted."""
        with self._lock:
            self._shards.pop(location.rstrip("/"), None)
