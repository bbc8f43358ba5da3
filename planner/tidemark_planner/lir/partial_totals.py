"""Aggregates of groups in parts: of parts of a group, and of these the whole.

    sum(int)              sum(sum(int))                            bigint
    sum(decimal(12,2))    CAST(sum(sum(x)) AS decimal(22,2))
    count(x)              coalesce(sum(count(x)), 0)
    max(x)                max(max(x))

Parts are exact, and neither they nor the whole overflow, since a group has at most 2 ** 30 rows. Averages and sums of
doubles have no such parts. Nor have sums of bigints: where the whole overflows, the aggregate itself must fail, also
where nothing above it reads the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemark_protocol.functions.aggregates import result_type
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import AggregateExpr as AggregateCall
from tidemark_protocol.types import BIGINT, ColumnType, SqlType

_MOST_DIGITS = 28
"""The sum of 2 ** 30 numbers of so many digits has at most 38."""


@dataclass(frozen=True)
class PartialTotal:
    """An aggregate in parts: `part` of the `value` of a part's rows (None: of the rows); `total` of the parts, as a
    value of type `type`. `is_count`: it is 0 where there are no parts.
    """

    part: AggregateCall
    value: ScalarExpr | None
    total: AggregateCall
    type: SqlType
    is_count: bool = False

    def aggregate_value(self, total: ColumnRef) -> ScalarExpr:
        """The value of the aggregate, from the column of the total over the parts."""
        if self.is_count:
            return call("coalesce", (total, Literal("0", BIGINT)), BIGINT)
        return total if self.type == total.type else call("cast", (total,), self.type)


def partial_total(of: AggregateCall, values: Sequence[ScalarExpr]) -> PartialTotal | None:
    """The aggregate of partial results; None where these do not make the whole, exactly. `values`: its arguments."""
    if of.distinct:
        return None
    value = None if of.argument is None else values[of.argument]
    if of.function == "count":
        return PartialTotal(of, value, _sum(BIGINT), BIGINT, is_count=True)
    if of.function in ("min", "max"):
        return PartialTotal(of, value, replace(of, filter=None), of.type.type)
    if of.function != "sum" or value is None or _may_overflow(value.type):
        return None
    part = replace(of, type=_sum(value.type).type)
    return PartialTotal(part, value, _sum(part.type.type), of.type.type)


def _may_overflow(summed: SqlType) -> bool:
    return summed.is_floating or summed == BIGINT or (summed.is_decimal and summed.precision > _MOST_DIGITS)


def _sum(of: SqlType) -> AggregateCall:
    """The sum of values of a type, at no place yet."""
    made = result_type("sum", of)
    assert made is not None
    return AggregateCall("sum", None, ColumnType(made))
