"""A result against what the file expects of it.

    value by value (SQLite's)     row by row                  hashed

    1                             1 2                         4 values hashing to 6ddb...
    2                             3 NULL
    3
    NULL

Rows that the query's ORDER BY leaves tied may come in any order: `ties` are the lengths of runs of such rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.sqllogictest.records import Query
from tests.sqllogictest.values import has_value, printed

Row = tuple[Any, ...]
_MOST_SHOWN = 12


@dataclass(frozen=True)
class Result:
    """The rows of a query, in order, and how many of them are tied with each other, run by run."""

    rows: tuple[Row, ...]
    ties: tuple[int, ...]
    names: tuple[str, ...] = ()
    leaves_open: bool = False
    """Whether SQL leaves open which rows these are: a LIMIT without an order."""

    def printed(self, types: str) -> list[str]:
        """All values in order, as SQLite prints them."""
        return [printed(v, _kind(types, i)) for row in self.rows for i, v in enumerate(row)]


@dataclass(frozen=True)
class Difference:
    """The value of the file, and the value that was found."""

    expected: str
    found: str


def difference(query: Query, result: Result) -> Difference | None:
    """The difference of the result; None if there is none."""
    if not query.checked:
        return None
    width = len(result.rows[0]) if result.rows else len(query.types) or len(result.names)
    if query.hash is not None:
        return _hash_difference(query, result)
    lines = list(query.expected)
    if query.names:
        lines = lines[1:]
    if _matches(query, result, lines, max(width, 1)):
        return None
    return Difference(_shown(lines), _shown(_lines_of(query, result)))


def digest(query: Query, result: Result) -> str:
    """The digest that queries of one label have in common."""
    return "\n".join(_sorted(query, result))


def _hash_difference(query: Query, result: Result) -> Difference | None:
    assert query.hash is not None
    values = _sorted(query, result)
    made = _md5(values)
    if (len(values), made) == query.hash:
        return None
    # Other engines print without regard to the type string.
    plain = replace(query, types="T" * len(query.types))
    if (len(values), _md5(_sorted(plain, result))) == query.hash:
        return None
    return Difference(
        f"{query.hash[0]} values hashing to {query.hash[1]}",
        f"{len(values)} values hashing to {made}: {_shown(_lines_of(query, result))}",
    )


def _md5(values: Sequence[str]) -> str:
    return hashlib.md5("".join(f"{v}\n" for v in values).encode()).hexdigest()


def _sorted(query: Query, result: Result) -> list[str]:
    """The values in the order in which they are hashed."""
    values = result.printed(query.types)
    if query.sort == "valuesort":
        return sorted(values)
    if query.sort == "rowsort" and result.rows:
        width = len(result.rows[0])
        rows = sorted(values[i : i + width] for i in range(0, len(values), width))
        return [value for row in rows for value in row]
    return values


def _matches(query: Query, result: Result, lines: Sequence[str], width: int) -> bool:
    rows, whole = result.rows, not query.rows_are_lines and len(lines) == len(result.rows) * width and width > 1
    if query.sort == "valuesort":
        found: list[tuple[Any, str]] = [(v, _kind(query.types, i)) for row in rows for i, v in enumerate(row)]
        cells = [c for line in lines for c in ([line] if whole or width == 1 else line.split())]
        return _same_multiset(found, cells, lambda value, cell: has_value(value[0], value[1], cell))
    if whole:
        expected_rows: list[str | list[str]] = [list(lines[i : i + width]) for i in range(0, len(lines), width)]
    else:
        expected_rows = [_cells(line, width) for line in lines]
    if len(expected_rows) != len(rows):
        return False

    def fits(row: Row, cells: str | list[str]) -> bool:
        return _same_row(row, query.types, cells)

    at = 0
    for run in (len(rows),) if query.sort == "rowsort" else result.ties:
        if not _same_multiset(rows[at : at + run], expected_rows[at : at + run], fits):
            return False
        at += run
    return True


def _same_multiset(found: Sequence[Any], expected_rows: Sequence[Any], fits: Callable[[Any, Any], bool]) -> bool:
    """Whether each thing found can be given one of what is said."""
    if len(found) != len(expected_rows):
        return False
    if all(fits(value, text) for value, text in zip(found, expected_rows, strict=True)):
        return True
    left = list(expected_rows)
    for value in found:
        at = next((i for i, text in enumerate(left) if fits(value, text)), None)
        if at is None:
            return False
        del left[at]
    return True


def _same_row(row: Row, types: str, cells: str | list[str]) -> bool:
    if isinstance(cells, str):  # values with spaces: the line as a whole
        return " ".join(" ".join(printed(v, _kind(types, i)) for i, v in enumerate(row)).split()) == cells
    return all(has_value(value, _kind(types, i), cells[i]) for i, value in enumerate(row))


def _cells(line: str, width: int) -> str | list[str]:
    """A line as the cells of a row, where it can be divided."""
    if width == 1:
        return [line]
    for cells in (line.split("\t"), line.split()):
        if len(cells) == width:
            return cells
    return " ".join(line.split())


def _kind(types: str, position: int) -> str:
    return types[position] if position < len(types) else "T"


def _lines_of(query: Query, result: Result) -> list[str]:
    return ["\t".join(printed(v, _kind(query.types, i)) for i, v in enumerate(row)) for row in result.rows]


def _shown(lines: Sequence[str]) -> str:
    more = f" ... ({len(lines)} lines)" if len(lines) > _MOST_SHOWN else ""
    return " | ".join(lines[:_MOST_SHOWN]) + more
