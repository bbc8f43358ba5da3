"""Exported indexes: read by peeks and by other dataflows of the replica, each holding back what it still needs.

since = min(what the controller allows, every importer's hold, upper - 1)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.types import Column
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.store import ArrangementStore


class IndexTrace:
    """An index: its arrangement in the store, and who reads it. Safe to use from several threads."""

    def __init__(
        self, id: GlobalId, store: ArrangementStore, arrangement: ArrangementId, columns: Sequence[Column]
    ) -> None:
        self.id, self.arrangement, self.columns = id, arrangement, tuple(columns)
        self.store = store
        self._mutex = threading.Lock()
        self._allowed = self.manifest.since
        self._holds: dict[Hold, int] = {}

    @property
    def manifest(self) -> Manifest:
        """The newest version. Pin it (`store.pin`) to read it."""
        return self.store.current(self.arrangement)

    @property
    def since(self) -> Frontier:
        return Frontier.at(self.manifest.since)

    @property
    def upper(self) -> Frontier:
        return Frontier.decode(self.manifest.upper)

    def allow_compaction(self, since: Frontier) -> None:
        """The controller does not read before `since` any more; an earlier one than before changes nothing."""
        with self._mutex:
            self._allowed = max(self._allowed, since.encode())

    def hold(self, time: int) -> Hold:
        """Keep the index readable from `time` on, until the hold is advanced or released."""
        with self._mutex:
            hold = Hold(self)
            self._holds[hold] = time
            return hold

    def compacted(self, manifest: Manifest) -> Manifest:
        """The manifest with the since that everybody allows."""
        with self._mutex:
            since = min([self._allowed, manifest.upper - 1, *self._holds.values()])
        return manifest.allow_compaction(since)

    def _move(self, hold: Hold, time: int | None) -> None:
        with self._mutex:
            if time is None:
                self._holds.pop(hold, None)
            elif hold in self._holds:
                self._holds[hold] = max(self._holds[hold], time)


class Hold:
    """One reader's claim on an index."""

    def __init__(self, index: IndexTrace) -> None:
        self._index = index

    def advance(self, time: int) -> None:
        """Times before `time` are not needed any more."""
        self._index._move(self, time)

    def release(self) -> None:
        """Nothing is needed any more; harmless when repeated."""
        self._index._move(self, None)
