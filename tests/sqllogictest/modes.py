"""Three ways to the same answers.

    moment          1         2         3         4
    time            10        20        30        40
    peek                                    | one step at 39: contents as they are
    before    | from 5, before anything is there, in steps over all times up to 39
    churn     the same, and between moments: random rows come and go, real rows go and come back

A query after moment m is read at time 10 m + 9. Churn after moment m lies in 10 m + 1 to 10 m + 8 and leaves nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tests.oracle.histories import History, Table
from tests.sqllogictest.database import StoredTable

MODES = ("peek", "before", "churn")
APART = 10
BEGINNING = 5
_MOST_CHURNED = 4  # moments of a table
_MOST_ROWS = 3  # at each of them, of each kind

Row = tuple[Any, ...]
Change = tuple[Row, int, int]


def reading_time(moment: int) -> int:
    """When a query is read that stands after the moment."""
    return APART * moment + APART - 1


def as_of(mode: str, moment: int) -> int:
    """Where the dataflow of a query begins."""
    return reading_time(moment) if mode == "peek" else BEGINNING


def bounds(mode: str, last: int, seed: str) -> list[int]:
    """Uppers of the steps up to the time `last`, which is read; what a step hydrates from is still empty."""
    if mode == "peek":
        return [last + 1]
    rng = random.Random(f"steps {seed}")
    inside = range(BEGINNING + 1, last)
    return sorted({*rng.sample(inside, min(len(inside), 1)), last + 1})


def history(mode: str, tables: Iterable[StoredTable], asked: Sequence[int], seed: str) -> History:
    """All changes of the tables, at their times; churn comes after moments after which something is asked."""
    changes = {}
    for table in tables:
        made = [(row, APART * moment, diff) for row, moment, diff in table.changes]
        if mode == "churn":
            made += _churn(table, asked, random.Random(f"churn {seed} {table.id}"))
        changes[table.id] = tuple(sorted(made, key=lambda change: change[1]))
    return History(changes, BEGINNING, max((t for c in changes.values() for _, t, _ in c), default=BEGINNING))


def as_tables(tables: Iterable[StoredTable]) -> dict[str, Table]:
    """The tables in the form that DataflowHarness takes."""
    return {t.id: Table(tuple((c.name, str(c.type)) for c in t.columns), ()) for t in tables}


def _churn(table: StoredTable, asked: Sequence[int], rng: random.Random) -> list[Change]:
    """Changes that cancel before anything is read."""
    moments = sorted(set(asked))
    made: list[Change] = []
    for moment in rng.sample(moments, min(len(moments), _MOST_CHURNED)):
        there = [row for row, n in _contents(table, moment).items() for _ in range(n)]
        for _ in range(_MOST_ROWS):
            come, go = sorted(rng.sample(range(1, APART - 1), 2))
            row = _random_row(table, there, rng)
            made += [(row, APART * moment + come, 1), (row, APART * moment + go, -1)]
        for row in rng.sample(there, min(len(there), _MOST_ROWS)):
            go, come = sorted(rng.sample(range(1, APART - 1), 2))
            made += [(row, APART * moment + go, -1), (row, APART * moment + come, 1)]
    return made


def _contents(table: StoredTable, moment: int) -> Counter[Row]:
    counts: Counter[Row] = Counter()
    for row, at, diff in table.changes:
        if at <= moment:
            counts[row] += diff
    return +counts


def _random_row(table: StoredTable, there: Sequence[Row], rng: random.Random) -> Row:
    """Each column's value is some row's, or NULL."""
    row = []
    for i, column in enumerate(table.columns):
        values = [r[i] for r in rng.sample(there, min(len(there), 2))] + ([None] if column.nullable else [])
        row.append(rng.choice(values) if values else _plain_value(str(column.type)))
    return tuple(row)


def _plain_value(type: str) -> Any:
    """A value for a column that may not be NULL, of a table without rows."""
    import datetime
    from decimal import Decimal

    simple = {"string": "x", "boolean": True, "double": 1.5, "float": 1.5, "binary": b"x"}
    if type == "date":
        return datetime.date(2020, 1, 1)
    if type.startswith("timestamp"):
        return datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC if type == "timestamp" else None)
    return Decimal(1) if type.startswith("decimal") else simple.get(type, 1)
