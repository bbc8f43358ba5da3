"""Constant expressions where a plan has a number: limits, offsets, positions, bounds of frames.

    LIMIT 2 * 5    10          LIMIT CAST('3' AS int)    3          LIMIT length('abc')    refused

Whole numbers are folded exactly, as Spark's ANSI mode computes them. An overflow or a division by zero is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_planner.errors import refuse
from tidemark_planner.expressions import fold
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.plan.literals import is_valid


def fold_constant(expr: ScalarExpr) -> Literal | None:
    """The literal that the expression is equal to; None where it is not constant, or not of a kind that is folded.
    Raises Refusal.
    """
    if isinstance(expr, Literal):
        return expr
    if not isinstance(expr, Call):
        return None
    arguments = [fold_constant(a) for a in expr.arguments]
    known = [a for a in arguments if a is not None and a.value is not None]
    if len(known) < len(arguments):
        return None
    if expr.function == "cast":
        return fold.fold_cast(known[0], expr.type)
    if not expr.type.is_integral or expr.function not in _WHOLE or any(not a.type.is_integral for a in known):
        return None
    return _computed(expr, [int(a.value or 0) for a in known])


def _computed(expr: Call, numbers: list[int]) -> Literal:
    try:
        found = Literal(str(_WHOLE[expr.function](*numbers)), expr.type)
    except ZeroDivisionError:
        refuse("TYPE", "a constant expression divides by zero: write the number itself")
    if not is_valid(found):
        refuse(
            "TYPE", f"a constant expression is {found.value}, beyond the range of {expr.type}: write a smaller number"
        )
    return found


_WHOLE: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "div": fold.quotient,
    "%": lambda a, b: a - b * fold.quotient(a, b),
    "negate": lambda a: -a,
    "abs": abs,
    "greatest": max,
    "least": min,
}
