"""Names of tables that take the place of earlier ones, since their columns are others.

    stored    orders  ──columns added──►  orders.2  ──►  orders.3
    display   orders.1                    orders.2       orders        SQL's `orders` is the last one

The earlier ones are ingested until no Dataflow reads them. The last one of a written table (`WrittenTable`) begins with
the rows of the one before it. A name of a spec has no dot, and no underscore but of tables of
PostgreSQL, which have no dead letters, so none is that of dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_protocol.plan.ingestion import DEAD_LETTER


def spec_name(name: str) -> str:
    """The name in the spec, and in SQL."""
    return name.partition(".")[0]


def number(name: str) -> int:
    """1 for the first table of its name."""
    return int(name.partition(".")[2] or 1)


def newest(names: Iterable[str]) -> dict[str, str]:
    """The last of the tables of each name in the spec."""
    return {spec_name(name): name for name in sorted(names, key=number)}


def display_names(names: Iterable[str]) -> dict[str, str]:
    """The names for people, by the stored ones: the last table has the name of the spec."""
    every = list(names)
    last = newest(every)
    return {
        name: spec_name(name) if last[spec_name(name)] == name else f"{spec_name(name)}.{number(name)}"
        for name in every
    }


def successor(name: str, known: Iterable[str]) -> str:
    """The name of the next table after the known ones that have this name in the spec."""
    return f"{name}.{1 + max((number(each) for each in known if spec_name(each) == name), default=0)}"


def earlier_names(name: str) -> tuple[str, ...]:
    """The names of the tables before this one, the last one first."""
    of_spec = spec_name(name)
    return tuple(f"{of_spec}.{each}" if each > 1 else of_spec for each in range(number(name) - 1, 0, -1))


def dead_letters(name: str) -> str:
    """The name of the table of a table's dead letters: of `orders.2` it is `orders_dead_letter.2`."""
    of_spec, dot, place = name.partition(".")
    return f"{of_spec}{DEAD_LETTER}{dot}{place}"


def without_dead_letters(name: str) -> str:
    """The name of the table whose dead letters a table of this name has."""
    of_spec, dot, place = name.partition(".")
    return f"{of_spec.removesuffix(DEAD_LETTER)}{dot}{place}"
