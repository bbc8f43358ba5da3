"""The Dataflows that read an object. The index is kept between questions: of many Dataflows few have changed since.

The objects that a Dataflow reads follow from `revisions` and `planning.reads`. Both are replaced and never changed in
place, so an entry is out of date exactly when one of them is another object than before.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.kube.cache import Key
from tidemark_operator.planning.revision import Parent


class ReaderIndex:
    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._readers: dict[tuple[str, Parent], set[Key]] = {}

    def put(self, state: DataflowState) -> None:
        self.forget(state.key)
        self._entries[state.key] = _Entry(state)

    def forget(self, key: Key) -> None:
        if entry := self._entries.pop(key, None):
            self._change(entry.state, entry.reads, ())

    def of(self, key: Key) -> Iterable[Key]:
        """Dataflows that read the object."""
        for entry in self._entries.values():
            if entry.is_old:
                before = entry.reads
                entry.renew()
                self._change(entry.state, before, entry.reads)
        return self._readers.get((key.namespace, Parent(key.resource.kind, key.name)), ())

    def _change(self, state: DataflowState, before: Iterable[Parent], now: Iterable[Parent]) -> None:
        namespace = state.key.namespace
        for parent in before:
            readers = self._readers.get((namespace, parent), set())
            readers.discard(state.key)
            if not readers:
                self._readers.pop((namespace, parent), None)
        for parent in now:
            self._readers.setdefault((namespace, parent), set()).add(state.key)


class _Entry:
    """The objects that one Dataflow read when the index looked at it last."""

    __slots__ = ("_revisions", "_storing", "reads", "state")

    def __init__(self, state: DataflowState) -> None:
        self.state = state
        self.reads: tuple[Parent, ...] = ()
        self._revisions: object = None
        self._storing: object = None

    @property
    def is_old(self) -> bool:
        return self.state.revisions is not self._revisions or self.state.planning.reads is not self._storing

    def renew(self) -> None:
        self._revisions, self._storing = self.state.revisions, self.state.planning.reads
        self.reads = self.state.reads
