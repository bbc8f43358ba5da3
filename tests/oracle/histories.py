"""Random histories of tables: rows come, go and are corrected, several at a time and at several times of a step.

    time 3   +(1, 'a') +(2, 'b')
    time 5   -(1, 'a') +(1, 'c')          an update
    time 5   +(9, NULL)
    time 8   -(9, NULL)                   seen by no step that ends after it, but by every frontier in between

Multiplicities never become negative. A seed gives the same history for ever.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_protocol.types import Column, ColumnType, SqlType

Row = tuple[Any, ...]
Change = tuple[Row, int, int]


@dataclass(frozen=True)
class Table:
    """Columns (name, type), and for each the values it may hold."""

    columns: tuple[tuple[str, str], ...]
    values: tuple[Sequence[Any], ...]

    @property
    def named(self) -> tuple[Column, ...]:
        return tuple(Column(name, SqlType.parse(type)) for name, type in self.columns)

    @property
    def schema(self) -> tuple[ColumnType, ...]:
        return tuple(ColumnType(c.type) for c in self.named)

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {type}" for name, type in self.columns)


@dataclass(frozen=True)
class History:
    """The changes of some tables, in order of time."""

    changes: Mapping[str, tuple[Change, ...]]
    as_of: int
    last: int
    tick: int = 0
    """For queries that read the clock: how far apart the changes are; what is shown may change at any of them."""

    @property
    def times(self) -> list[int]:
        """Every frontier at which something changes, from the as_of on."""
        if self.tick:
            ticks = range(self.as_of, self.last + self.tick, self.tick)
            return sorted({t - before for t in ticks for before in (0, 1) if t - before >= self.as_of})
        found = {t for changes in self.changes.values() for _, t, _ in changes if t > self.as_of}
        return sorted({self.as_of, *found})

    def rows_at(self, table: str, time: int) -> list[Row]:
        """The table's contents."""
        counts: Counter[str] = Counter()
        rows: dict[str, Row] = {}
        for row, at, diff in self.changes[table]:
            if at <= time:
                rows[repr(row)] = row  # rows may hold lists
                counts[repr(row)] += diff
        assert all(n >= 0 for n in counts.values()), "a history holds a negative multiplicity"
        return [rows[text] for text in counts.elements()]


def random_history(
    tables: Mapping[str, Table], seed: int, *, times: int = 7, changes: int = 5, tick: int = 0
) -> History:
    """A history of so many different times, with up to so many changes of each table at each."""
    rng = random.Random(seed)
    moments = [m * max(tick, 1) for m in sorted(rng.sample(range(1, 6 * times), times))]
    as_of = moments[rng.randrange(0, 2)]
    made = {name: tuple(_changes(rng, table, moments, changes)) for name, table in tables.items()}
    return History(made, as_of, moments[-1], tick)


def _changes(rng: random.Random, table: Table, moments: Sequence[int], most: int) -> list[Change]:
    alive: list[Row] = []
    made: list[Change] = []
    for time in moments:
        for _ in range(rng.randint(0, most)):
            action = rng.random()
            if alive and action < 0.45:
                gone = alive.pop(rng.randrange(len(alive)))
                made.append((gone, time, -1))
                if action < 0.25:
                    continue
            row = tuple(rng.choice(values) for values in table.values)
            alive.append(row)
            made.append((row, time, 1))
    return made


def random_bounds(history: History, seed: int, cuts: int | None = None) -> list[int]:
    """Uppers of steps that cover the history, cut anywhere: `cuts` times, or 0 to 4 times."""
    rng = random.Random(f"bounds {seed}")
    end = history.last + 1 + rng.randrange(3)
    inside = range(history.as_of + 1, end)
    return sorted({*rng.sample(inside, min(len(inside), rng.randint(0, 4) if cuts is None else cuts)), end})
