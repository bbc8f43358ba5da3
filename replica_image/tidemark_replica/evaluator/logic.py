"""AND, OR, NOT, CASE, IF and COALESCE.

false AND error = false, and true OR error = true, in either order. Branches of CASE, and later arguments of COALESCE,
fail only where they are taken. `render/expressions/failable_sql.py` is the same in SQL.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.plan.expr import Call
from tidemark_replica.arrangement.rows.updates import Array, Bools
from tidemark_replica.evaluator.comparisons import is_plain
from tidemark_replica.evaluator.result import Result, any_of, is_true, valid
from tidemark_replica.values.arrow_types import arrow_type


def admits_choice(call: Call) -> bool:
    return is_plain(call.type)


def negation(call: Call, arguments: list[Result]) -> Result:
    return Result(pc.invert(arguments[0].values), arguments[0].failed)


def connective(call: Call, parts: list[Result]) -> Result:
    """AND, which a false part decides, and OR, which a true one does."""
    decides = call.function == "or"
    value = reduce(pc.or_kleene if decides else pc.and_kleene, (p.values for p in parts))
    failed = any_of(*(p.failed for p in parts))
    if failed is None:
        return Result(value)
    known = np.zeros(len(failed), np.bool_)
    for part in parts:
        decided = is_true(part.values) if decides else is_true(pc.invert(part.values))
        known |= decided if part.failed is None else decided & ~part.failed
    value = pc.if_else(pa.array(known), pa.scalar(decides), value)
    return Result(value, any_of(failed & ~known))


def case(call: Call, arguments: list[Result]) -> Result:
    """CASE and IF: condition, value, condition, value, ..., and perhaps a last value."""
    rows = len(arguments[0].values)
    open_, failed = np.ones(rows, np.bool_), np.zeros(rows, np.bool_)
    made = pa.nulls(rows, arrow_type(call.type))
    paired = len(arguments) // 2 * 2
    for condition, value in zip(arguments[:paired:2], arguments[1:paired:2], strict=True):
        taken = open_ & is_true(condition.values)
        if condition.failed is not None:
            failed |= open_ & condition.failed
            taken &= ~condition.failed
            open_ = open_ & ~condition.failed
        made, failed = _take(made, failed, taken, value)
        open_ = open_ & ~taken
    if paired < len(arguments):
        made, failed = _take(made, failed, open_, arguments[paired])
    return Result(made, any_of(failed))


def coalesce(call: Call, arguments: list[Result]) -> Result:
    """The first argument that is not NULL; a failure before it counts."""
    rows = len(arguments[0].values)
    open_, failed = np.ones(rows, np.bool_), np.zeros(rows, np.bool_)
    made = pa.nulls(rows, arrow_type(call.type))
    for argument in arguments:
        if argument.failed is not None:
            failed |= open_ & argument.failed
            open_ = open_ & ~argument.failed
        taken = open_ & valid(argument.values)
        made, failed = _take(made, failed, taken, Result(argument.values))
        open_ = open_ & ~taken
    return Result(made, any_of(failed))


def _take(made: Array, failed: Bools, taken: Bools, value: Result) -> tuple[Array, Bools]:
    if not taken.any():
        return made, failed
    if value.failed is not None:
        failed = failed | (taken & value.failed)
    return (value.values if taken.all() else pc.if_else(pa.array(taken), value.values, made)), failed
