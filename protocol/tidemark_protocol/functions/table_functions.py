"""The allow-list of table functions: each row of the input becomes as many rows as there are values.

    explode(array<T>)             its elements                               none for NULL and for an empty array
    posexplode(array<T>)          the positions, from 0, and the elements
    sequence(start, stop, step)   start, start + step, ... up to stop        none where an argument is NULL

`..._outer`: one row of NULLs where there is no value. A sequence that leads away from its stop is an error row, and so
is one with more values than Spark's arrays can hold. The default step is 1 towards the stop; for dates, one day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_protocol.plan.map_filter_project import Schema
from tidemark_protocol.types import DATE, INT, ColumnType, SqlType

ILLEGAL_SEQUENCE = "INVALID_PARAMETER_VALUE"
TOO_MANY_VALUES = "COLLECTION_SIZE_LIMIT_EXCEEDED"
MAX_VALUES = 2**31 - 1 - 15
"""The most elements of an array in Spark."""
_OUTER = "_outer"


@dataclass(frozen=True)
class TableFunction:
    """The parts of a name: explode or sequence, with positions or without, with a row for no value (outer) or
    without."""

    base: str
    with_position: bool
    outer: bool


def table_function(name: str) -> TableFunction | None:
    """The parts of the name; None where there is no such table function."""
    base = name.removesuffix(_OUTER)
    with_position = base == "posexplode"
    base = "explode" if with_position else base
    return TableFunction(base, with_position, name != base and name.endswith(_OUTER)) if base in _PRODUCES else None


def produces(name: str, arguments: Sequence[SqlType]) -> Schema | None:
    """The columns that the function appends; None where there is no such function over these arguments."""
    function = table_function(name)
    element = None if function is None else _PRODUCES[function.base](arguments)
    if function is None or element is None:
        return None
    place = (ColumnType(INT, function.outer),) * function.with_position
    return (*place, ColumnType(element, function.outer or function.base == "explode"))


def _elements(arguments: Sequence[SqlType]) -> SqlType | None:
    return arguments[0].element if len(arguments) == 1 and arguments[0].is_array else None


def _steps(arguments: Sequence[SqlType]) -> SqlType | None:
    if not 2 <= len(arguments) <= 3:
        return None
    of = arguments[0]
    if of == DATE:
        return DATE if tuple(arguments[1:]) in ((DATE,), (DATE, INT)) else None
    return of if of.is_integral and set(arguments) == {of} else None


_PRODUCES = {"explode": _elements, "sequence": _steps}
