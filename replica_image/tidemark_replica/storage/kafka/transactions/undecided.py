"""The transactions that were bound although their END did not say how many events they have.

Later events in each partition have shown that nothing of them is to come. That is no proof where the broker refused a
batch of Kafka Connect's producer: its events come behind the binding. So the positions of the events that were there
are durable, and tell late events from those that come again.

    {"before": 0, "bound": [["728", 26392432, {"items": {"0": [26392008, 424]}}], ...]}
                                 └ of commit    table   partition └ first position, what is added for the next one
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

TRANSACTIONS_MAX = 100
"""How many are remembered; events of earlier transactions that come again are taken for late ones."""
POSITIONS_MAX = 10_000
"""Positions that are remembered, of all of them; without them, events that come again are taken for late ones."""
Positions = Mapping[str, Mapping[int, Sequence[int]]]
"""By table and partition."""


@dataclass(frozen=True)
class _Bound:
    id: str
    end: int
    seen: Positions | None

    @property
    def size(self) -> int:
        return sum(len(found) for parts in (self.seen or {}).values() for found in parts.values())


class UndecidedBound:
    """What bindings remember of such transactions, as text."""

    def __init__(self, text: str = "") -> None:
        found: dict[str, Any] = json.loads(text) if text else {"before": 0, "bound": []}
        self.before: int = found["before"]
        """All bound transactions that ended there or earlier count as undecided ones."""
        self._bound = [_Bound(id, end, None if seen is None else _decoded(seen)) for id, end, seen in found["bound"]]

    def end_of(self, id: str, position: int) -> int | None:
        """Where the transaction ended that has an event at the position; None where it is none of these."""
        found = self._find(id, position)
        return None if found is None else found.end

    def positions(self, table: str, id: str, partition: int, position: int) -> Sequence[int] | None:
        """The positions of the transaction's events that are bound; none of another transaction. None where they are
        not known. `position`: of an event of it."""
        found = self._find(id, position)
        if found is None:
            return ()
        return None if found.seen is None else found.seen.get(table, {}).get(partition, ())

    def text_with(self, bound: Sequence[tuple[str, int, Positions | None]]) -> str:
        """The text of a binding that also has these transactions: of each its id, the position of its commit, and the
        positions of its events, None where they are not known."""
        all = [*self._bound, *(_Bound(*each) for each in bound)]
        before = max([self.before, *(one.end for one in all[:-TRANSACTIONS_MAX])])
        all, left = all[-TRANSACTIONS_MAX:], POSITIONS_MAX
        kept: list[tuple[str, int, object]] = []
        for one in reversed(all):
            seen = one.seen if one.size <= left else None
            left -= one.size if seen is not None else 0
            kept.append((one.id, one.end, None if seen is None else _encoded(seen)))
        return json.dumps({"before": before, "bound": kept[::-1]}, separators=(",", ":"))

    def _find(self, id: str, position: int) -> _Bound | None:
        return next((one for one in self._bound if one.id == id and position <= one.end), None)


def _encoded(seen: Positions) -> dict[str, dict[str, list[int]]]:
    return {
        table: {str(p): [*found[:1], *(b - a for a, b in pairwise(found))] for p, found in parts.items()}
        for table, parts in seen.items()
    }


def _decoded(seen: Mapping[str, Mapping[str, Sequence[int]]]) -> Positions:
    return {table: {int(p): list(accumulate(found)) for p, found in parts.items()} for table, parts in seen.items()}
