"""Exported indexes: arrangements that peeks and other dataflows of the replica read.

since = min(the time that the controller allows, every hold, upper - 1)        of all indexes that are one arrangement
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.types import Column
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.store import ArrangementStore


class IndexTrace:
    """An index: its arrangement in the store, and the holds of its readers. Methods may be called from any thread."""

    def __init__(
        self, id: GlobalId, store: ArrangementStore, arrangement: ArrangementId, columns: Sequence[Column]
    ) -> None:
        self.id, self.arrangement, self.columns = id, arrangement, tuple(columns)
        self.store = store
        self._mutex = threading.Lock()
        self._allowed = self.manifest.since
        self._holds: dict[IndexHold, int] = {}

    @property
    def manifest(self) -> Manifest:
        """The newest manifest. A reader pins it (`store.pin`)."""
        return self.store.current(self.arrangement)

    @property
    def since(self) -> Frontier:
        return Frontier.at(self.manifest.since)

    @property
    def upper(self) -> Frontier:
        return Frontier.decode(self.manifest.upper)

    def allow_compaction(self, since: Frontier) -> None:
        """Let times before `since` be compacted. A `since` below the present one changes nothing."""
        with self._mutex:
            self._allowed = max(self._allowed, since.encode())

    def hold(self, time: int) -> IndexHold:
        """Keep the index readable from `time` on until the hold is advanced or released."""
        with self._mutex:
            hold = IndexHold(self)
            self._holds[hold] = time
            return hold

    @property
    def least_readable(self) -> int:
        """The least time at which the controller or a hold may read."""
        with self._mutex:
            return min([self._allowed, *self._holds.values()])

    def _move(self, hold: IndexHold, time: int | None) -> None:
        with self._mutex:
            if time is None:
                self._holds.pop(hold, None)
            elif hold in self._holds:
                self._holds[hold] = max(self._holds[hold], time)


def compacted(manifest: Manifest, indexes: Iterable[IndexTrace]) -> Manifest:
    """The manifest with the since that all indexes allow which it is; its own dataflow reads from upper - 1 on."""
    return manifest.allow_compaction(min([manifest.upper - 1, *(index.least_readable for index in indexes)]))


class IndexHold:
    """A reader's hold on an index."""

    def __init__(self, index: IndexTrace) -> None:
        self._index = index

    def advance(self, time: int) -> None:
        """Give up the times before `time`."""
        self._index._move(self, time)

    def release(self) -> None:
        """Give up the hold. May be repeated."""
        self._index._move(self, None)
