"""Clients: handles on shards, shared within a process.

A `PersistClient` stands for one root (a folder, or a prefix of a bucket) and its credentials; shards are named by their
path under it. `PersistClientCache` gives one client per root, and a client one handle per shard, so that all parts of a
replica follow a shard's log once.

Shards are opened outside the locks: a store that hangs delays only callers that open a shard there.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

import pyarrow as pa

from tidemark_persist.errors import ShardMismatch
from tidemark_persist.maintenance.maintenance import MaintenancePolicy
from tidemark_persist.schema import physical_schema, user_schema
from tidemark_persist.shard import DEFAULT_POLICY, Shard, create_or_open


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
        self._lock = Lock()
        self._writers: dict[str, Shard] = {}

    def location(self, path: str) -> str:
        """The location of the shard `path`."""
        return f"{self.root}/{path.strip('/')}" if path.strip("/") else self.root

    def open_writer(self, path: str, schema: pa.Schema, *, shard_id: str) -> Shard:
        """The shard, created if there is none. The same handle each time, unless the shard of that handle was another
        owner's. Raises ShardMismatch."""
        location = self.location(path)
        with self._lock:
            known = self._writers.get(location)
        if known is None or known.shard_id != shard_id:
            opened = create_or_open(
                location,
                schema,
                shard_id=shard_id,
                storage_options=self.storage_options,
                policy=self.policy,
            )
            with self._lock:
                if self._writers.get(location) is known:
                    self._writers[location] = opened
                known = self._writers.get(location, opened)
        if known.shard_id != shard_id or not known.schema.equals(user_schema(physical_schema(schema))):
            raise ShardMismatch(f"shard {location} is open as {known.shard_id!r} with {known.schema}")
        return known


class PersistClientCache:
    """One client per root."""

    def __init__(self, policy: MaintenancePolicy = DEFAULT_POLICY) -> None:
        self._policy = policy
        self._lock = Lock()
        self._clients: dict[str, PersistClient] = {}

    def open(self, root: str, storage_options: Mapping[str, str] | None = None) -> PersistClient:
        """The client for this root. Other options (rotated credentials) replace the client."""
        with self._lock:
            known = self._clients.get(root.rstrip("/"))
            if known is None or known.storage_options != storage_options:
                known = PersistClient(root, storage_options, self._policy)
                self._clients[root.rstrip("/")] = known
            return known

    def forget(self, root: str) -> None:
        """Drops the client and all its handles, for a root whose shards are deleted."""
        with self._lock:
            self._clients.pop(root.rstrip("/"), None)
