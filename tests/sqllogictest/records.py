"""The records of a sqllogictest file.

    statement ok                    Statement(expects=Ok())
    INSERT INTO t VALUES (1)

    query II rowsort label-7        Query(types="II", sort="rowsort", label="label-7", ...)
    SELECT a, b FROM t
    ----
    1 2

Conditions (`skipif`, `onlyif`) have been applied: a record that is not for this engine is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Where a record begins."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Statement:
    """`expects`: ok, error, or maybe (either will do); `count`: how many rows it changes, where that is said."""

    place: Place
    sql: str
    expects: str = "ok"
    message: str = ""
    count: int | None = None
    connection: str = ""


@dataclass(frozen=True)
class Query:
    """`expected`: the lines below `----`, or, where `hash` is set, their number and the MD5 of them all.

    `checked`: without a `----` only that it runs is asked. `rows_are_lines`: the file says that a line holds a whole
    row (`mode cockroach`); else the number of lines tells. `names`: the first line has the columns' names.
    """

    place: Place
    sql: str
    types: str
    sort: str = "nosort"
    label: str = ""
    expected: tuple[str, ...] = ()
    hash: tuple[int, str] | None = None
    error: str | None = None
    checked: bool = True
    rows_are_lines: bool = False
    names: bool = False
    connection: str = ""


@dataclass(frozen=True)
class Unknown:
    """A record of another engine's format, with why it cannot be run."""

    place: Place
    reason: str


@dataclass(frozen=True)
class Let:
    """A query whose one row gives values to names, which later texts write as $name."""

    place: Place
    sql: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Reset:
    """The engine begins anew, without tables."""

    place: Place


Record = Statement | Query | Unknown | Let | Reset
