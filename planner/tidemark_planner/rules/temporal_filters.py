"""Temporal filters: a comparison of `now()` with a column bounds the time during which a row exists.

    ts > now() - INTERVAL 1 HOUR        now < ts + 1 hour                          upper
    d <= current_date()                 now >= midnight of d                       lower
    ts < current_date() + 1             now >= midnight after ts's day, less 1     lower

A side that reads the clock is a non-decreasing step function of now (now plus a day-time interval, or the day of now
plus days), so its comparison with a value that does not read the clock can be solved for now. Other uses (`=`, months,
the clock below OR or outside filters) are refused. The time zone is UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from tidemark_planner.errors import refuse, unsupported
from tidemark_planner.expressions import fold
from tidemark_planner.hir.nodes import Filter, Hir, Join, expressions_of, preorder
from tidemark_planner.rules.scalar import conjuncts
from tidemark_protocol.functions.registry import call, reads_clock
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, walk
from tidemark_protocol.types import DATE, INT, TIMESTAMP, SqlType

NOW, TODAY = "now", "current_date"
_DAY = SqlType("interval day to second")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HINT = "in a filter, compare it with a column, as in WHERE ts > now() - INTERVAL 1 HOUR"


@dataclass(frozen=True)
class Bounds:
    """`lower` <= now < `upper`; one of them is None."""

    lower: ScalarExpr | None = None
    upper: ScalarExpr | None = None


@dataclass(frozen=True)
class _ClockExpression:
    """A side that reads the clock: now + `shift` microseconds, or (`of_day`) the day of now + `shift` days."""

    of_day: bool
    shift: int


def bounds_of(predicate: ScalarExpr) -> Bounds:
    """A predicate that reads the clock as bounds on now; raises Refusal where it cannot be solved for now."""
    if not isinstance(predicate, Call) or predicate.function not in _MIRRORED:
        _refuse(predicate, "the clock in a condition other than <, <=, > and >=")
    left, right = predicate.arguments
    operator = predicate.function
    if reads_clock(right):
        left, right, operator = right, left, _MIRRORED[operator]
    if reads_clock(right):
        _refuse(predicate, "a comparison of the clock with itself")
    clock = _clock_expression(left)
    return _solve_for_day(clock, operator, right) if clock.of_day else _solve_for_now(clock, operator, right)


def check_clock(hir: Hir) -> None:
    """Raise Refusal where the clock is read outside a condition of a filter or a join."""
    for node in preorder(hir):
        for expr in expressions_of(node):
            if not isinstance(node, Filter | Join):
                if reads_clock(expr):
                    _refuse(expr, "the clock outside a filter", f"rows do not depend on when they are read; {_HINT}")
                continue
            for each in conjuncts(expr):
                if reads_clock(each):
                    bounds_of(each)


def _refuse(expr: ScalarExpr, construct: str, hint: str = _HINT) -> NoReturn:
    """Raise Refusal for an expression that cannot be solved for now, at the clock in the text."""
    read = next(n.function for n in walk(expr) if isinstance(n, Call) and n.function in (NOW, TODAY))
    refuse("UNSUPPORTED", f"{construct} is not supported: {hint}", word=read)


def _clock_expression(expr: ScalarExpr) -> _ClockExpression:
    """The side that reads the clock, as a step function; raises Refusal."""
    found = _step_function(expr)
    if found is None:
        _refuse(expr, "an expression over the clock other than adding days, hours, minutes or seconds to it")
    return found


def _step_function(expr: ScalarExpr) -> _ClockExpression | None:
    if not isinstance(expr, Call):
        return None
    if expr.function in (NOW, TODAY):
        return _ClockExpression(expr.function == TODAY, 0)
    inner = _step_function(expr.arguments[0])
    if inner is None:
        return None
    if expr.function == "cast" and expr.type == TIMESTAMP:
        return inner
    if expr.function == "cast":
        return replace(inner, of_day=True) if expr.type == DATE and not inner.shift else None
    by = expr.arguments[-1]
    shift = _shift(expr.function, inner, by) if isinstance(by, Literal) else None
    return None if shift is None else replace(inner, shift=inner.shift + shift)


def _shift(function: str, clock: _ClockExpression, by: Literal) -> int | None:
    """The amount by which a call shifts the clock, in its own unit."""
    amount = int(by.value) if by.value is not None and by.type.name != "interval year to month" else None
    if amount is None:
        return None
    if function == "+" and by.type == _DAY and not clock.of_day:
        return amount
    if function in ("date_add", "date_sub") and clock.of_day:
        return amount if function == "date_add" else -amount
    return None


def _solve_for_now(clock: _ClockExpression, operator: str, other: ScalarExpr) -> Bounds:
    """`now + shift OP other`, solved for now."""
    if other.type != TIMESTAMP:
        unsupported(f"a comparison of the clock with a {other.type}", "cast it to timestamp", "now")
    bound = _add_microseconds(other, -clock.shift)
    if operator in (">", "<="):
        bound = _add_microseconds(bound, 1)
    return Bounds(lower=bound) if operator in (">", ">=") else Bounds(upper=bound)


def _solve_for_day(clock: _ClockExpression, operator: str, other: ScalarExpr) -> Bounds:
    """`day of now + shift OP other`, solved for now: bounds are midnights."""
    if other.type == TIMESTAMP:
        # the day of now is a midnight: it is >= a moment exactly if it is > the day of the microsecond before
        if operator in (">=", "<"):
            other, operator = _add_microseconds(other, -1), {">=": ">", "<": "<="}[operator]
        other = _cast(other, DATE)
    if other.type != DATE:
        unsupported(f"a comparison of current_date() with a {other.type}", "cast it to date", "current_date")
    days = (1 if operator in (">", "<=") else 0) - clock.shift
    day = other if days == 0 else _add_days(other, days)
    midnight = _cast(day, TIMESTAMP)
    return Bounds(lower=midnight) if operator in (">", ">=") else Bounds(upper=midnight)


def _add_microseconds(moment: ScalarExpr, microseconds: int) -> ScalarExpr:
    if microseconds == 0:
        return moment
    if isinstance(moment, Call) and moment.function == "+":
        start, by = moment.arguments
        if isinstance(by, Literal) and by.type == _DAY:  # months have no fixed length
            return moment if by.value is None else _add_microseconds(start, int(by.value) + microseconds)
    return call("+", (moment, Literal(str(microseconds), _DAY)), moment.type)


def _add_days(day: ScalarExpr, days: int) -> ScalarExpr:
    if isinstance(day, Literal) and (folded := fold.add_days(day, days)) is not None:
        return folded
    return call("date_add", (day, Literal(str(days), INT)), DATE)


def _cast(expr: ScalarExpr, to: SqlType) -> ScalarExpr:
    if isinstance(expr, Literal) and (folded := fold.fold_cast(expr, to)) is not None:
        return folded
    return call("cast", (expr,), to)
