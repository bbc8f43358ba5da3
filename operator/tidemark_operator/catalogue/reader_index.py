"""The Dataflows that read an object. The index is kept between questions: of many Dataflows few have changed since.

The objects that a Dataflow reads follow from `revisions` and `planning.reads`. Both are replaced and never changed in
place, so an entry is out of date exactly when one of them is another object than before.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.catalogue.dataflow_state import DataflowState, RevisionSet
from tidemark_operator.kube.cache import Key
from tidemark_operator.planning.revision import Parent

_NOTHING: tuple[RevisionSet | None, tuple[Parent, ...], tuple[Parent, ...]] = (None, (), ())


class ReaderIndex:
    def __init__(self) -> None:
        self._states: dict[Key, DataflowState] = {}
        self._seen: dict[Key, tuple[RevisionSet | None, tuple[Parent, ...], tuple[Parent, ...]]] = {}
        """The `revisions` and `planning.reads` that each Dataflow had when it was looked at last, and what it read."""
        self._readers: dict[tuple[str, Parent], set[Key]] = {}

    def put(self, state: DataflowState) -> None:
        self.forget(state.key)
        self._states[state.key], self._seen[state.key] = state, _NOTHING

    def forget(self, key: Key) -> None:
        if self._states.pop(key, None) is not None:
            self._change(key, self._seen.pop(key)[2], ())

    def of(self, key: Key) -> Iterable[Key]:
        """Dataflows that read the object."""
        for reader, state in self._states.items():
            revisions, storing, before = self._seen[reader]
            if state.revisions is not revisions or state.planning.reads is not storing:
                self._seen[reader] = state.revisions, state.planning.reads, state.reads
                self._change(reader, before, state.reads)
        return self._readers.get((key.namespace, Parent(key.resource.kind, key.name)), ())

    def _change(self, reader: Key, before: Iterable[Parent], now: Iterable[Parent]) -> None:
        for parent in before:
            readers = self._readers.get((reader.namespace, parent), set())
            readers.discard(reader)
            if not readers:
                self._readers.pop((reader.namespace, parent), None)
        for parent in now:
            self._readers.setdefault((reader.namespace, parent), set()).add(reader)
