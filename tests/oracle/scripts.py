"""Histories and steps that hypothesis draws, and makes smaller when something is wrong.

time    3    5         8     12                gaps, shrinking to 1
t       +x   +y  x→z   -y                      insert, delete, update; several at once, shrinking to fewer inserts
u            +v        +v                      rows of the values that the case's table may hold
as_of        ^                                 what is before is the snapshot
steps        ├──────┤├─────────┤               cut anywhere; a second way to cut beside it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.oracle.check import Case
from tests.oracle.histories import Change, History, Row, Table

MOMENTS, CHANGES, CUTS = 6, 4, 4
Event = tuple[Row | None, int | None]
"""(the row that comes, which of those that are there goes)."""


@dataclass(frozen=True)
class Script:
    """A history and two ways to cut it into steps: their uppers."""

    history: History
    bounds: tuple[int, ...]
    other_bounds: tuple[int, ...]


@st.composite
def scripts(draw: st.DrawFn, case: Case) -> Script:
    """Any script for a case."""
    tick = max(case.tick, 1)
    gaps = draw(st.lists(st.integers(1, 4), min_size=1, max_size=MOMENTS))
    moments = [sum(gaps[: i + 1]) * tick for i in range(len(gaps))]
    made = {name: _changes(draw, table, moments) for name, table in case.tables.items()}
    as_of = draw(st.integers(1, moments[-1] // tick)) * tick
    history = History(made, as_of, moments[-1], case.tick)
    return Script(history, draw(_bounds(history)), draw(_bounds(history)))


def _changes(draw: st.DrawFn, table: Table, moments: Sequence[int]) -> tuple[Change, ...]:
    alive: list[Row] = []
    made: list[Change] = []
    for time in moments:
        for row, gone in draw(st.lists(_events(table), max_size=CHANGES)):
            if gone is not None and alive:
                made.append((alive.pop(gone % len(alive)), time, -1))
            if row is not None:
                alive.append(row)
                made.append((row, time, 1))
    return tuple(made)


def _events(table: Table) -> st.SearchStrategy[Event]:
    rows = st.tuples(*map(st.sampled_from, table.values))
    which = st.integers(0, MOMENTS * CHANGES)
    return st.one_of(st.tuples(rows, st.none()), st.tuples(st.none(), which), st.tuples(rows, which))


def _bounds(history: History) -> st.SearchStrategy[tuple[int, ...]]:
    """The last one may be past the history's end."""
    inside = st.integers(history.as_of + 1, max(history.last, history.as_of + 1))
    cuts, end = st.sets(inside, max_size=CUTS), st.integers(history.last + 1, history.last + 3)
    return st.tuples(cuts, end).map(lambda drawn: tuple(sorted({c for c in drawn[0] if c < drawn[1]} | {drawn[1]})))
