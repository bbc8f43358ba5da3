"""Casts: folded where that is exact, refused where the value would depend on the time of planning."""

from __future__ import annotations

from tidemark_planner.errors import refuse, unsupported
from tidemark_planner.expressions import fold
from tidemark_protocol.casts import cast_errors
from tidemark_protocol.functions.intervals import WHOLE
from tidemark_protocol.functions.registry import call, is_constant
from tidemark_protocol.plan.expr import Literal, ScalarExpr
from tidemark_protocol.plan.literals import is_special_time
from tidemark_protocol.types import STRING, SqlType


def cast_to(of: ScalarExpr, target: SqlType) -> ScalarExpr:
    """The expression as another type; a literal is folded where that is exact. Raises Refusal."""
    if of.type == target:
        return of
    if isinstance(of, Literal) and (folded := fold.fold_cast(of, target)) is not None:
        return folded
    if cast_errors(of.type, target) is None:
        refuse(
            "TYPE",
            f"a cast from {of.type} to {target} is not supported: cast to a type in between, or choose another",
            word=str(target),
        )
    if of.type.name == "string" and is_constant(of) and target.name in ("date", "timestamp", "timestamp_ntz"):
        _refuse_moment(of, target)
    return call("cast", (of,), target)


def truncate_interval(of: ScalarExpr, described: object, target: SqlType) -> ScalarExpr:
    """An interval as one of Spark's interval types, which may end before the smallest field (`interval day`).

    The planner has one type per kind of interval, so only the fields that are cut off make a difference.
    """
    unit = str(described).rpartition(" ")[2].upper()
    whole = WHOLE[target].get(unit)
    if whole is None:
        return of
    if isinstance(of, Literal):
        return of if of.value is None else Literal(str(fold.quotient(int(of.value), whole) * whole), target)
    return call("interval_truncated", (of, Literal(unit, STRING)), target)


def _refuse_moment(of: ScalarExpr, target: SqlType) -> None:
    if not isinstance(of, Literal):
        unsupported(f"constant text put together and cast to {target}", "write the date or time as one literal")
    if of.value is not None and is_special_time(of.value):
        message = (
            f"'{of.value}' as a {target} depends on the time of planning: "
            "write the date or time itself, or filter by now()"
        )
        refuse("UNSUPPORTED", message, word=of.value)
