"""The keys of calls that were written: rows of the remap shard, kept for a day, the newest of them.

table   entry                 value
        key/6f1c-...          {"digest": "5e88...", "rows": 2, "time": 1767225600000}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice

from tidemark_protocol.ids import Time
from tidemark_replica.storage.staged_bindings import Entry

KEPT_MS = 24 * 3600 * 1000
KEYS_MAX = 100_000
FORGOTTEN_PER_TICK = 10_000
_PREFIX = "key/"


@dataclass(frozen=True)
class WrittenKey:
    """The call that used a key first."""

    digest: str
    rows: int
    time: int

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> WrittenKey:
        return cls(**json.loads(text))


class WrittenKeys:
    """The keys by which calls are known, the oldest first."""

    def __init__(self, positions: Mapping[Entry, str]) -> None:
        """`positions`: of the remap shard."""
        found = [
            (name.removeprefix(_PREFIX), WrittenKey.from_json(value))
            for (_, name), value in positions.items()
            if name.startswith(_PREFIX)
        ]
        self._keys = dict(sorted(found, key=lambda key: key[1].time))

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key: str) -> WrittenKey | None:
        return self._keys.get(key)

    def add(self, key: str, written: WrittenKey) -> None:
        self._keys[key] = written

    def forget(self, key: str) -> None:
        self._keys.pop(key, None)

    def outdated(self, time: Time) -> list[str]:
        """The keys that are not kept any more at `time`, at most FORGOTTEN_PER_TICK."""
        found = list[str]()
        surplus = len(self._keys) - KEYS_MAX
        for key, written in islice(self._keys.items(), FORGOTTEN_PER_TICK):
            if len(found) >= surplus and written.time > time - KEPT_MS:
                break
            found.append(key)
        return found


def entry(key: str) -> Entry:
    """The row's place in the remap shard."""
    return "", f"{_PREFIX}{key}"
