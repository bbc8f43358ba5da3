"""Comparisons of a literal with a CASE or IF over literals: folded where all branches give the same answer.

    CASE WHEN x div y > 1 THEN 'high' ELSE 'low' END = 'none'        false

Spark's optimiser compares within the branches and drops the conditions, so its batch does not fail in a condition.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.types import BOOLEAN

Fold = Callable[[Literal, Any], Literal | None]
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<=>": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
DATE_TEXT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def constant_comparison(call: Call, fold_cast: Fold) -> Literal | None:
    """The literal that the comparison is equal to in all branches; None where it depends on the branch, or is no such
    comparison.
    """
    compared = _COMPARISONS.get(call.function)
    if compared is None or sum(isinstance(a, Literal) for a in call.arguments) != 1:
        return None
    left, right = ([_value(each) for each in _possible_literals(a, fold_cast)] for a in call.arguments)
    if not left or not right or None in (*left, *right):
        return None
    answers = [compared(one, other) for one in left for other in right]
    if any(answers) and not all(answers):
        return None
    return Literal("true" if all(answers) else "false", BOOLEAN)


def _possible_literals(expr: ScalarExpr, fold_cast: Fold) -> list[Literal | None]:
    """The literals that the expression may be; empty where it may be more than literals. A CASE without ELSE may be
    NULL.
    """
    if isinstance(expr, Literal):
        return [expr]
    if not isinstance(expr, Call):
        return []
    if expr.function == "cast":
        return [each and fold_cast(each, expr.type) for each in _possible_literals(expr.arguments[0], fold_cast)]
    if expr.function not in ("case", "if") or len(expr.arguments) % 2 == 0:
        return []
    values = (*expr.arguments[1:-1:2], expr.arguments[-1])
    return [v for v in values if isinstance(v, Literal)] if all(isinstance(v, Literal) for v in values) else []


def _value(literal: Literal | None) -> Any:
    """The value in a type that Python orders as Spark does; None for NULL, and where the order is not known."""
    if literal is None or literal.value is None:
        return None
    if literal.type.is_integral or literal.type.is_decimal:
        return Decimal(literal.value)
    if literal.type.name == "string":
        return literal.value.encode()
    if literal.type.name == "boolean":
        return literal.value == "true"
    return literal.value if literal.type.name == "date" and DATE_TEXT.fullmatch(literal.value) else None
