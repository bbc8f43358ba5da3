"""Folding of literals under casts, signs and date arithmetic, where it is exact and cannot fail.

    cast(1 as decimal(1,0))                1            so that 1 - discount is known never to fail
    cast('1994-01-01' as date)             DATE '1994-01-01'
    DATE '1998-12-01' - 90 days            DATE '1998-09-02'
    x div y + NULL                         NULL: Spark's optimiser does not evaluate x div y either
    if(x div y > 1, 1, 2) = 3              false, for the same reason (literal_comparisons.py)

Nothing that could raise, and nothing that depends on when it is folded, is ever folded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal

from tidemark_planner.expressions.literal_comparisons import DATE_TEXT, constant_comparison
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.plan.literals import is_valid
from tidemark_protocol.types import INTERVAL_TYPES, SqlType

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)")
_OPERATORS = frozenset({"+", "-", "*", "/", "div", "%"})
_EXACT_IN = {"float": 1 << 24, "double": 1 << 53}


def fold_call(call: Call) -> ScalarExpr:
    """The call, or the literal that it is equal to."""
    literals = [a for a in call.arguments if isinstance(a, Literal)]
    if call.function in _OPERATORS and any(a.value is None for a in literals):
        return Literal(None, call.type)
    if len(literals) < len(call.arguments):
        return constant_comparison(call, fold_cast) or call
    found: Literal | None = None
    if call.function == "cast":
        found = fold_cast(literals[0], call.type)
    elif call.function == "negate":
        found = negate(literals[0])
    elif call.function in _DATE_SHIFTS and literals[1].value is not None:
        move, sign = _DATE_SHIFTS[call.function]
        found = move(literals[0], sign * int(literals[1].value))
    return call if found is None else found


def fold_cast(literal: Literal, target: SqlType) -> Literal | None:
    """The literal as type `target`; None where the cast is left to the evaluator."""
    if literal.value is None or literal.type == target:
        return Literal(literal.value, target)
    if literal.type.is_integral or literal.type.is_decimal:
        value = _fold_number(Decimal(literal.value), literal.type, target)
    elif literal.type.name == "string":
        value = _fold_text(literal.value, target)
    elif literal.type.name == "date" and target.name in ("timestamp", "timestamp_ntz"):
        value = f"{literal.value}T00:00:00"
    else:
        value = None
    folded = None if value is None else Literal(value, target)
    return folded if folded is not None and is_valid(folded) else None


def negate(literal: Literal) -> Literal | None:
    """The literal with the opposite sign; None where that does not fit its type."""
    if literal.value is None:
        return literal
    if not (literal.type.is_numeric or literal.type.name in INTERVAL_TYPES) or literal.value == "NaN":
        return None
    value = literal.value[1:] if literal.value.startswith("-") else "-" + literal.value
    if literal.type.is_integral or literal.type.is_decimal or literal.type.name in INTERVAL_TYPES:
        value = value if Decimal(value) != 0 else literal.value.lstrip("-")
    folded = Literal(value, literal.type)
    return folded if is_valid(folded) else None


def quotient(left: int, right: int) -> int:
    """Integer division, rounded towards zero."""
    made = abs(left) // abs(right)
    return made if (left < 0) == (right < 0) else -made


def add_days(literal: Literal, days: int) -> Literal | None:
    return _shift_date(literal, lambda at: at + timedelta(days=days))


def add_months(literal: Literal, months: int) -> Literal | None:
    """The same day of a later month, or that month's last day."""

    def moved(at: date) -> date:
        month = at.year * 12 + at.month - 1 + months
        first = date(month // 12, month % 12 + 1, 1)
        last = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
        return min(first + timedelta(days=at.day - 1), last)

    return _shift_date(literal, moved)


_DATE_SHIFTS = {"date_add": (add_days, 1), "date_sub": (add_days, -1), "add_months": (add_months, 1)}


def _shift_date(literal: Literal, move: Callable[[date], date]) -> Literal | None:
    if literal.value is None:
        return literal
    try:
        return Literal(move(date.fromisoformat(literal.value)).isoformat(), literal.type)
    except (ValueError, OverflowError):
        return None


def _fold_number(value: Decimal, of: SqlType, target: SqlType) -> str | None:
    if target.is_integral:
        return str(int(value)) if of.is_integral else None
    if target.is_decimal:
        return f"{value:.{target.scale}f}" if of.scale <= target.scale else None
    if target.is_floating and of.is_integral:
        return repr(float(value)) if abs(value) <= _EXACT_IN[target.name] else None
    if target.name == "double":
        return repr(float(value))
    return None


def _fold_text(value: str, target: SqlType) -> str | None:
    if target.is_integral and _INTEGER.fullmatch(value) and value != "-0":
        return value
    if target.is_floating and value in ("NaN", "Infinity", "-Infinity"):
        return value
    if target.name == "date" and DATE_TEXT.fullmatch(value):
        return value
    found = _TIMESTAMP.fullmatch(value)
    return f"{found[1]}T{found[2]}" if found and target.name in ("timestamp", "timestamp_ntz") else None
