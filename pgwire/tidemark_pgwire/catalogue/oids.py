"""Oids of what a session names: the same for the same name as long as the session lasts, and never shared.

An oid is a hash of the name, so that it is mostly the same in another session, too. Where two names have one hash, the
later one takes the next that is free.
"""

from __future__ import annotations

import hashlib
import threading

from tidemark_pgwire.catalogue.facts import CatalogueError

FIRST_OF_USERS = 16_384
NAMES_MAX = 1_000_000
_RANGE = 2**31 - FIRST_OF_USERS


class Oids:
    """Of a session."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, ...], int] = {}
        self._taken: set[int] = set()
        self._lock = threading.Lock()  # a statement that was cancelled may still run beside the next one

    def of(self, *name: str) -> int:
        """`name`: what it is (`relation`, `type` …), and its names. Raises CatalogueError: there are too many."""
        found = self._by_name.get(name)
        return self._new(name) if found is None else found

    def _new(self, name: tuple[str, ...]) -> int:
        with self._lock:
            return self._by_name.get(name) or self._make(name)

    def _make(self, name: tuple[str, ...]) -> int:
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
