"""The check by types that Spark finds: whether an expression means in Spark what it means in its dialect.

Translation guesses kinds of values by names (number_kinds.py). This check sees the analysed query, so what the guess
missed is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_planner.errors import unsupported
from tidemark_planner.hir.nodes import Aggregate, Hir, expressions_of, inputs_of
from tidemark_protocol.plan.expr import Call, ScalarExpr, walk
from tidemark_protocol.types import SqlType

_SUMS = ("+", "-", "*")
_ROUNDED = ("round", "rint", "floor", "ceil")


def check_types(hir: Hir, dialect: str) -> None:
    """Raises Refusal for an expression that would give another value in the dialect."""
    for node in _nodes(hir):
        for expression in expressions_of(node):
            for each in walk(expression):
                if isinstance(each, Call):
                    _check(each, dialect)
        if isinstance(node, Aggregate):
            for aggregate in node.aggregates:
                if aggregate.function == "avg" and aggregate.type.type.name == "decimal":
                    unsupported(f"avg of decimals in dialect {dialect}", "cast it to double precision", "avg")


def _check(call: Call, dialect: str) -> None:
    types = [argument.type for argument in call.arguments]
    if call.function == "/" and call.type.name == "decimal":
        unsupported(f"a quotient of decimals in dialect {dialect}", "cast one side to double precision", "/")
    if call.function == "div" and any(of.name == "decimal" for of in types):
        unsupported(f"a quotient of these types in dialect {dialect}", "cast both sides to integers", "/")
    if call.function in _SUMS and call.type.name == "decimal" and _scale(call.function, types) > call.type.scale:
        unsupported(f"decimals of so many digits in dialect {dialect}", "cast the operands to fewer digits")
    if call.function == "round" and types[0].is_floating:
        unsupported(f"round of double precision in dialect {dialect}", "cast it to numeric(p, s)", "round")
    if call.function == "cast":
        _check_cast(call.arguments[0], call.type, dialect)


def _check_cast(of: ScalarExpr, to: SqlType, dialect: str) -> None:
    rounded = isinstance(of, Call) and of.function in _ROUNDED
    cuts = of.type.is_floating or (of.type.name == "decimal" and of.type.scale > 0)
    if to.is_integral and cuts and not rounded:
        unsupported(f"this cast to an integer in dialect {dialect}", "round it first")
    if to.name == "string" and of.type.name not in ("string", "date") and not of.type.is_integral:
        unsupported(f"a cast of {of.type} to text in dialect {dialect}", "leave it as it is")
    if to.name == "decimal" and of.type.is_floating:
        unsupported(f"a cast of {of.type} to numeric in dialect {dialect}", "leave it as it is")


def _scale(function: str, types: list[SqlType]) -> int:
    """The digits behind the point that the exact result has."""
    scales = [of.scale if of.name == "decimal" else 0 for of in types]
    return sum(scales) if function == "*" else max(scales)


def _nodes(hir: Hir) -> Iterator[Hir]:
    todo = [hir]
    while todo:
        node = todo.pop()
        yield node
        todo += inputs_of(node)
