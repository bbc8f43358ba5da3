"""The transactions that were bound although their END did not say how many events they have.

Later events in each partition have shown that nothing of them is to come. That is no proof where the broker refused a
batch of Kafka Connect's producer: its events come behind the binding. So the positions of the events that were there
are durable, and tell late events from those that come again.

    [["728", 26392432, "eJyr..."], ...]    the id, the position of the commit, and in base64 and zlib, by table
                        └ {"items": [2, {"0": [26392008, 424]}], "orders": null}
                                     │    │    └ first position, what is added for the next one
                                     │    └ partition             null: the positions are not known
                                     └ partitions of the topic

Connect writes refused events when it begins again the next time. So what is forgotten, as there were many such
transactions since, is not late when it comes: it comes again.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

TRANSACTIONS_MAX = 1_000
"""The number of transactions that are remembered; events of earlier transactions come again."""
BYTES_MAX = 1 << 20
"""The bytes of their texts, at most; where they have more, the earlier ones are remembered without positions."""


@dataclass(frozen=True)
class TablePositions:
    """The positions of a transaction's events in a table, sorted, by partition; `count`: of the topic's partitions."""

    count: int
    by_partition: Mapping[int, Sequence[int]]

    def of(self, partition: int, count: int) -> Sequence[int]:
        """The positions of the events that come again in the partition, of `count`: where partitions were added, those
        of all."""
        if count == self.count:
            return self.by_partition.get(partition, ())
        return sorted(at for found in self.by_partition.values() for at in found)


Positions = Mapping[str, TablePositions | None]
"""By table that the transaction was bound with; None where the positions are not known."""


@dataclass(frozen=True)
class _Bound:
    id: str
    end: int
    text: str

    @cached_property
    def seen(self) -> Positions:
        return _decoded(self.text)


class UndecidedBound:
    """The record of such transactions in bindings, as text."""

    def __init__(self, text: str = "") -> None:
        self._bound = [_Bound(*each) for each in (json.loads(text) if text else [])]
        self._by_id: dict[str, list[_Bound]] = {}
        for one in self._bound:
            self._by_id.setdefault(one.id, []).append(one)

    def has(self, table: str, id: str, position: int) -> bool:
        """Whether a transaction that has an event at the position is one of these, and was bound with the table."""
        found = self._find(id, position)
        return found is not None and table in found.seen

    def positions(self, table: str, id: str, position: int) -> TablePositions | None:
        """The positions of the transaction's events that are bound; none of another transaction, and of a table that
        it was not bound with. None where they are not known. `position`: of an event of it."""
        found = self._find(id, position)
        return found.seen.get(table, _NONE) if found is not None else _NONE

    def text_with(self, bound: Sequence[tuple[str, int, Positions]]) -> str:
        """The text of a binding that also has these transactions: of each its id, the position of its commit, and the
        positions of its events."""
        all = [*self._bound, *(_Bound(id, end, _encoded(seen)) for id, end, seen in bound)]
        left, kept = BYTES_MAX, list[tuple[str, int, str]]()
        for one in reversed(all[-TRANSACTIONS_MAX:]):
            text = one.text if len(one.text) <= left else _encoded(dict.fromkeys(one.seen))
            left -= len(text)
            kept.append((one.id, one.end, text))
        return json.dumps(kept[::-1], separators=(",", ":"))

    def _find(self, id: str, position: int) -> _Bound | None:
        return next((one for one in self._by_id.get(id, ()) if position <= one.end), None)


_NONE = TablePositions(0, {})


def _encoded(seen: Positions) -> str:
    found = {
        table: [one.count, {p: _steps(at) for p, at in one.by_partition.items()}] if one is not None else None
        for table, one in seen.items()
    }
    return b64encode(zlib.compress(json.dumps(found, separators=(",", ":")).encode())).decode()


def _steps(positions: Sequence[int]) -> list[int]:
    return np.diff(np.array(positions, np.uint64), prepend=np.uint64(0)).tolist()  # type: ignore[no-any-return]


def _decoded(text: str) -> Positions:
    found = json.loads(zlib.decompress(b64decode(text)))
    return {
        table: TablePositions(
            one[0], {int(p): np.cumsum(np.array(steps, np.uint64)).tolist() for p, steps in one[1].items()}
        )
        if one is not None
        else None
        for table, one in found.items()
    }
