"""The rows of an INSERT: defaults written out, and conflicts with existing keys resolved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tests.sqllogictest.lexer import divided, enclosed, tokens

Row = tuple[Any, ...]


class Keyed(Protocol):
    """A table with rows and the positions that must be distinct together."""

    keys: tuple[tuple[int, ...], ...]
    rows: list[Row]


def clashing(table: Keyed, made: list[Row], clash: str) -> tuple[list[Row], list[Row]]:
    """The rows that go and come where keys may be there already: the old row goes, or the new one does not come."""
    there = {(key, tuple(row[i] for i in key)): row for row in table.rows for key in table.keys}
    gone: list[Row] = []
    kept: list[Row] = []
    for row in made:
        places = [(key, tuple(row[i] for i in key)) for key in table.keys]
        others = [there[p] for p in places if p in there and None not in p[1]]
        if others and clash == "ignore":
            continue
        for other in dict.fromkeys(others):
            kept.remove(other) if other in kept else gone.append(other)
            there = {place: r for place, r in there.items() if r != other}
        there.update((p, row) for p in places)
        kept.append(row)
    return gone, kept


def with_defaults(source: str, defaults: Sequence[str]) -> str:
    """VALUES in which DEFAULT is written out."""
    found = tokens(source)
    if not found or found[0].upper != "VALUES" or all(t.upper != "DEFAULT" for t in found):
        return source
    rows = []
    for part in divided(found[1:]):
        values = list(divided(part[1 : enclosed(part, 0) - 1]))
        texts = (
            default if [t.upper for t in value] == ["DEFAULT"] else source[value[0].start : value[-1].end]
            for value, default in zip(values, defaults, strict=False)
        )
        rows.append(f"({', '.join(texts)})")
    return f"VALUES {', '.join(rows)}"
