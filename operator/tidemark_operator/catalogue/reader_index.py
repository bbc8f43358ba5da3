"""Who reads what, kept from one question to the next: of many Dataflows, few have changed since the last one.

What a Dataflow reads follows from three of its fields, each of which is only ever set, never changed within. So whether
it reads something else is seen by looking whether they are the very same objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidemark_operator.kube.cache import Key
from tidemark_operator.planning.revision import Parent


class Reader(Protocol):
    """A Dataflow, as far as this goes. `claims`, `active` and `pending`: what its reads follow from."""

    @property
    def key(self) -> Key: ...

    @property
    def claims(self) -> object: ...

    @property
    def active(self) -> object: ...

    @property
    def pending(self) -> object: ...

    @property
    def reads(self) -> tuple[Parent, ...]: ...


class Readers:
    def __init__(self) -> None:
        self._looks: dict[Key, _Look] = {}
        self._readers: dict[tuple[str, Parent], set[Key]] = {}

    def put(self, state: Reader) -> None:
        self.forget(state.key)
        self._looks[state.key] = _Look(state)

    def forget(self, key: Key) -> None:
        if look := self._looks.pop(key, None):
            self._change(look.state, look.reads, ())

    def of(self, key: Key) -> Iterable[Key]:
        """Dataflows that read the object."""
        for look in self._looks.values():
            if look.is_old:
                before = look.reads
                look.renew()
                self._change(look.state, before, look.reads)
        return self._readers.get((key.namespace, Parent(key.resource.kind, key.name)), ())

    def _change(self, state: Reader, before: Iterable[Parent], now: Iterable[Parent]) -> None:
        namespace = state.key.namespace
        for parent in before:
            readers = self._readers.get((namespace, parent), set())
            readers.discard(state.key)
            if not readers:
                self._readers.pop((namespace, parent), None)
        for parent in now:
            self._readers.setdefault((namespace, parent), set()).add(state.key)


class _Look:
    """At a Dataflow: what it read then."""

    __slots__ = ("_active", "_claims", "_pending", "reads", "state")

    def __init__(self, state: Reader) -> None:
        self.state = state
        self.reads: tuple[Parent, ...] = ()
        self._claims: object = ()
        self._active: object = None
        self._pending: object = None

    @property
    def is_old(self) -> bool:
        state = self.state
        same = state.claims is self._claims and state.active is self._active and state.pending is self._pending
        return not same

    def renew(self) -> None:
        self._claims, self._active, self._pending = self.state.claims, self.state.active, self.state.pending
        self.reads = self.state.reads
