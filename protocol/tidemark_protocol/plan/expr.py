"""Scalar expressions: typed trees of three kinds of node.

    Call("*", (ColumnRef(3), Call("-", (Literal("1"), ColumnRef(4)))))        price * (1 - discount)

Columns are positions in the row that the expression is evaluated on. Every function is one of the allow-list
(`functions/registry.py`), which also says when it can fail and how it is written in Spark SQL
(`functions/sql_text.py`). All coercions are explicit `cast` calls; evaluators add none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tidemark_protocol.types import SqlType
from tidemark_protocol.vocabulary import wire_name


@wire_name("ColumnRef")
@dataclass(frozen=True)
class ColumnRef:
    """The column at position `index` of the input row."""

    index: int
    type: SqlType
    nullable: bool = True


@wire_name("Literal")
@dataclass(frozen=True)
class Literal:
    """A constant in canonical text; `value` None: NULL.

    boolean true/false; integers and decimals in digits (decimals with exactly `scale` fraction digits); floats as
    Python's
    repr, `NaN`, `Infinity`, `-Infinity`; date 2020-01-31; timestamps 2020-01-31T23:59:59.000001 (timestamp: in UTC);
    binary in
    hex; intervals in months or microseconds; strings unchanged; arrays and structs as JSON lists of the canonical texts
    of
    their elements or fields (or lists, or null).
    """

    value: str | None
    type: SqlType


@wire_name("Call")
@dataclass(frozen=True)
class Call:
    """A function of the allow-list applied to arguments; `type`: that of the result."""

    function: str
    arguments: tuple[ScalarExpr, ...]
    type: SqlType
    nullable: bool = True


ScalarExpr = ColumnRef | Literal | Call


def is_nullable(expr: ScalarExpr) -> bool:
    return expr.value is None if isinstance(expr, Literal) else expr.nullable


def walk(expr: ScalarExpr) -> Iterator[ScalarExpr]:
    """The expression and all below it, parents first."""
    yield expr
    if isinstance(expr, Call):
        for argument in expr.arguments:
            yield from walk(argument)


def columns_of(expr: ScalarExpr) -> frozenset[int]:
    """The positions of the columns that the expression reads."""
    return frozenset(node.index for node in walk(expr) if isinstance(node, ColumnRef))


def shift_columns(expr: ScalarExpr, by: int) -> ScalarExpr:
    """The expression over a row in which its columns stand `by` places later."""
    return map_columns(expr, lambda column: column + by)


def map_columns(expr: ScalarExpr, position: Callable[[int], int]) -> ScalarExpr:
    """The same expression over a row whose column n is now at `position(n)`."""
    if isinstance(expr, ColumnRef):
        return replace(expr, index=position(expr.index))
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(map_columns(a, position) for a in expr.arguments))
    return expr
