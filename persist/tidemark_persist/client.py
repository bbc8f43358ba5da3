"""Clients: handles on shards, shared within a process.

A `PersistClient` stands for one root (a folder or a bucket's prefix) and its credentials; shards are named by
their path under it. `PersistClientCache` hands out one client per root, and a client one handle per shard, so
that all parts of a replica follow a shard's log once.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import RLock

import pyarrow as pa

from tidemark_persist.errors import ShardMismatch
from tidemark_persist.maintenance import MaintenancePolicy
from tidemark_persist.schema import physical_schema, user_schema
from tidemark_persist.shard import DEFAULT_POLICY, Shard, ShardReader, create_or_open, open_shard


class PersistClient:
    """The shards under one root."""

    def __init__(
        self,
        root: str,
        storage_options: Mapping[str, str] | None = None,
        policy: MaintenancePolicy = DEFAULT_POLICY,
    ) -> None:
        self.root = root.rstrip("/")
        self.storage_options = storage_options
        self.policy = policy
        self._lock = RLock()
        self._writers: dict[str, Shard] = {}
        self._readers: dict[str, ShardReader] = {}

    def location(self, path: str) -> str:
        """Where the shard `path` is."""
        return f"{self.root}/{path.strip('/')}" if path.strip("/") else self.root

    def open_writer(self, path: str, schema: pa.Schema, *, shard_id: str) -> Shard:
        """The shard, created if there is none; the same handle each time."""
        location = self.location(path)
        with self._lock:
            known = self._writers.get(location)
            if known is None:
                known = create_or_open(
                    location,
                    schema,
                    shard_id=shard_id,
                    storage_options=self.storage_options,
                    policy=self.policy,
                )
                self._writers[location] = known
            elif known.shard_id != shard_id or not known.schema.equals(user_schema(physical_schema(schema))):
                raise ShardMismatch(f"shard {location} is open as {known.shard_id!r} with {known.schema}")
            return known

    def open_reader(self, path: str) -> ShardReader:
        """The shard, which must exist; the writer's handle where this process has one."""
        location = self.location(path)
        with self._lock:
            known = self._writers.get(location) or self._readers.get(location)
            if known is None:
                known = self._readers[location] = open_shard(location, self.storage_options)
            return known

    def close(self, path: str) -> None:
        """Forget the shard's handles: for one that is dropped or deleted."""
        with self._lock:
            self._writers.pop(self.location(path), None)
            self._readers.pop(self.location(path), None)


class PersistClientCache:
    """One client per root."""

    def __init__(self, policy: MaintenancePolicy = DEFAULT_POLICY) -> None:
        self._policy = policy
        self._lock = RLock()
        self._clients: dict[str, PersistClient] = {}

    def open(self, root: str, storage_options: Mapping[str, str] | None = None) -> PersistClient:
        """The client for this root. Other options (rotated credentials) replace the client."""
        with self._lock:
            known = self._clients.get(root.rstrip("/"))
            if known is None or known.storage_options != storage_options:
                known = PersistClient(root, storage_options, self._policy)
                self._clients[root.rstrip("/")] = known
            return known
