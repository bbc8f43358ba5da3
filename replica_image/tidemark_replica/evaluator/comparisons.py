"""Comparisons: NULL compared with anything is NULL; NaN equals NaN and is greater than every other number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.functions.registry import call as made_call
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.types import BOOLEAN, SqlType
from tidemark_replica.arrangement.rows.columns import fixed
from tidemark_replica.arrangement.rows.updates import Array
from tidemark_replica.evaluator.result import Result, any_of, column, in_order, is_true, valid
from tidemark_replica.values.arrow_types import arrow_type
from tidemark_replica.values.literals import literal_value

_ARROW = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def is_plain(type: SqlType) -> bool:
    """Whether a type is not nested."""
    try:
        return not pa.types.is_nested(arrow_type(type))
    except ValueError:
        return False


def admits_comparison(call: Call) -> bool:
    return all(is_plain(a.type) for a in call.arguments)


def comparison(call: Call, arguments: list[Result]) -> Result:
    """`=`, `<`, `<=`, `>`, `>=`."""
    left, right = (a.values for a in arguments)
    return Result(_compared(call.function, left, right), in_order(arguments))


def null_safe(call: Call, arguments: list[Result]) -> Result:
    """`<=>` evaluates both sides, and is never NULL."""
    left, right = (a.values for a in arguments)
    here, there = valid(left), valid(right)
    equal = is_true(_compared("=", left, right))
    return Result(pa.array((equal & here & there) | ~(here | there)), any_of(*(a.failed for a in arguments)))


def is_null(call: Call, arguments: list[Result]) -> Result:
    return Result(pa.array(~valid(arguments[0].values)), arguments[0].failed)


def is_not_null(call: Call, arguments: list[Result]) -> Result:
    return Result(pa.array(valid(arguments[0].values)), arguments[0].failed)


def is_nan(call: Call, arguments: list[Result]) -> Result:
    values = arguments[0].values
    return Result(pa.array(np.isnan(fixed(values)) & valid(values)), arguments[0].failed)


def admits_in(call: Call) -> bool:
    of, *choices = call.arguments
    return is_plain(of.type) and not of.type.is_floating and all(isinstance(c, Literal) for c in choices)


def as_equalities(call: Call) -> ScalarExpr:
    """`c0 IN (1, c1)` as `c0 IN (1) OR c0 = c1`, for lists that cannot fail."""
    of, *choices = call.arguments
    literals = tuple(c for c in choices if isinstance(c, Literal))
    equal = [made_call("=", (of, c), BOOLEAN) for c in choices if not isinstance(c, Literal)]
    if not equal or of.type.is_floating:
        return call
    parts = (*((made_call("in", (of, *literals), BOOLEAN),) if literals else ()), *equal)
    return parts[0] if len(parts) == 1 else made_call("or", parts, BOOLEAN)


def is_in(call: Call, arguments: list[Result]) -> Result:
    """`IN (literals)`: NULL where no literal is equal and one is NULL."""
    of = arguments[0].values
    literals = pa.array([literal_value(c) for c in call.arguments[1:] if isinstance(c, Literal)], of.type)
    found = np.asarray(pc.is_in(of, value_set=literals.drop_null()).to_numpy(zero_copy_only=False))
    present = valid(of)
    if literals.null_count:
        present = present & found
    return Result(column(found, pa.bool_(), present), arguments[0].failed)


def _compared(operator: str, left: Array, right: Array) -> Array:
    if pa.types.is_floating(left.type):
        made = _FLOATS[operator](fixed(left), fixed(right))
        return column(made, pa.bool_(), valid(left) & valid(right))
    if pa.types.is_boolean(left.type) and operator != "=":
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    return _ARROW[operator](left, right)


def _equal(a: Any, b: Any) -> Any:
    return (a == b) | (np.isnan(a) & np.isnan(b))


def _is_less(a: Any, b: Any) -> Any:
    """Where a is less than b: NaN is greater than all other values."""
    return (a < b) | (np.isnan(b) & ~np.isnan(a))


_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "=": _equal,
    "<": _is_less,
    "<=": lambda a, b: ~_is_less(b, a),
    ">": lambda a, b: _is_less(b, a),
    ">=": lambda a, b: ~_is_less(a, b),
}
