"""Oids of relations, types, schemas and roles. In a session a name keeps its oid, and no two names share one.

An oid is a hash of the name, so that it is mostly the same in another session, too. Where two names have one hash, the
later one takes the next that is free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from tidemark_pgwire.catalogue.facts import CatalogueError

FIRST_OF_USERS = 16_384
NAMES_MAX = 200_000
_RANGE = 2**31 - FIRST_OF_USERS


class Oids:
    """The oids that a statement names. `known`: by name, the oids that earlier statements of its session named."""

    def __init__(self, known: Mapping[tuple[str, ...], int] | None = None) -> None:
        self._known = known or {}
        self._by_name = dict(self._known)
        self._taken = set(self._by_name.values())

    def of(self, *name: str) -> int:
        """`name`: what it is (`relation`, `type` …), and its names. Raises CatalogueError: there are too many."""
        found = self._by_name.get(name)
        return self._new(name) if found is None else found

    def new(self) -> Mapping[tuple[str, ...], int]:
        """The oids that no earlier statement named, by name."""
        return {name: oid for name, oid in self._by_name.items() if name not in self._known}

    def _new(self, name: tuple[str, ...]) -> int:
        if len(self._taken) >= NAMES_MAX:
            raise CatalogueError("54000", f"this session has named {NAMES_MAX} things of the catalogue; connect again")
        digest = hashlib.blake2b("\0".join(name).encode(), digest_size=8).digest()
        place = int.from_bytes(digest) % _RANGE
        while FIRST_OF_USERS + place in self._taken:
            place = (place + 1) % _RANGE
        oid = FIRST_OF_USERS + place
        self._by_name[name] = oid
        self._taken.add(oid)
        return oid
