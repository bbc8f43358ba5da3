"""Error rows of malformed values whose key is known: such an error takes the place of the key's row, and goes when the
key is written again or deleted.

    {"code": "MALFORMED_RECORD", "expression": "orders/0@5 key 3f0c..."}      the digest tells whose error it is

The live errors are those of the table's shard, so nothing else is durable. Their number is bounded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidemark_persist import DIFF, ERROR, Shard
from tidemark_protocol.plan.ingestion import MALFORMED_RECORD
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.stop import TOO_MANY_ERRORS
from tidemark_replica.values.error_text import error_text

ERRORS_MAX = 10_000
_KEYED = re.compile(r" key ([0-9a-f]{32})\"")


class KeyedErrors:
    """The errors of one table, by the digest of a key. An error that is added counts once a binding names it."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._live: dict[str, str] = {}
        self._without_key = 0
        self._upper: int | None = None
        self._new: dict[str, str | None] = {}
        self._new_without_key: list[str] = []

    def refresh(self) -> None:
        """Reads the errors of the shard, unless the bindings since then are known."""
        upper = self._shard.refresh().upper
        if self._upper == upper:
            return
        found = self._shard.errors(upper - 1).to_pylist() if upper else []
        keyed = {m[1]: row[ERROR] for row in found if (m := _KEYED.search(row[ERROR]))}
        self._live, self._upper = keyed, upper
        self._without_key = sum(row[DIFF] for row in found) - len(keyed)

    def add(self, keys: Sequence[pa.Array], places: Sequence[str | None]) -> None:
        """Changes of these keys, in order. A place: the change is a malformed record there; None: it is another."""
        if not self._live and not self._new and not any(places):
            return
        for values, place in zip(zip(*(key.to_pylist() for key in keys), strict=True), places, strict=True):
            digest = key_digest(values)
            self._new[digest] = None if place is None else error_text(MALFORMED_RECORD, f"{place} key {digest}")

    def add_without_key(self, place: str) -> None:
        """A record whose key is malformed: its error stays."""
        self._new_without_key.append(error_text(MALFORMED_RECORD, place))

    def updates(self) -> list[tuple[str, int]]:
        """The errors that come and go, with their diffs. Raises TableStopped where too many would be left."""
        changed = [(self._live.get(digest), text) for digest, text in self._new.items()]
        rows = [(old, -1) for old, new in changed if old is not None and old != new]
        rows += [(new, 1) for old, new in changed if new is not None and old != new]
        rows += [(text, 1) for text in self._new_without_key]
        left = len(self._live) + self._without_key + sum(diff for _, diff in rows)
        if left > max(ERRORS_MAX, len(self._live) + self._without_key):
            raise TableStopped(TOO_MANY_ERRORS, f"{left} malformed records would be errors of the table")
        return rows

    def bound(self, upper: int) -> None:
        """A binding has the updates, if any; the shard's upper will be `upper`."""
        if self._upper is None:  # the live errors were not read yet
            self.discard()
            return
        for digest, text in self._new.items():
            if text is None:
                self._live.pop(digest, None)
            else:
                self._live[digest] = text
        self._without_key += len(self._new_without_key)
        self._upper = upper
        self.discard()

    def discard(self) -> None:
        self._new, self._new_without_key = {}, []


def key_digest(values: Sequence[Any]) -> str:
    """A digest of a key's values. It is part of durable texts."""
    texts = [value.hex() if isinstance(value, bytes) else str(value) for value in values]
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).hexdigest()
