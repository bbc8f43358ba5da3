"""The aggregates of a query while it is lowered: the values that they read, and a stand-in column for each.

    sum(x) / count(*) + 1      values [x]    made [sum(0), count(*)]     over stand-ins: (s0 / s1) + 1

Equal aggregates are computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import refuse
from tidemark_planner.lower.base import Lowered
from tidemark_planner.rules.scalar import conjunction
from tidemark_protocol.functions.aggregates import AGGREGATES, result_type
from tidemark_protocol.functions.registry import call, is_fallible
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr, is_nullable
from tidemark_protocol.plan.lir import AggregateExpr, OrderKey
from tidemark_protocol.types import BIGINT, BOOLEAN, ColumnType, SqlType

# The stand-ins for aggregates are columns far beyond those of any input.
FIRST_STAND_IN = 1 << 30


class AggregateCalls:
    """Collects the distinct aggregates of all outputs over the rows `below`, and the values that they read."""

    def __init__(self, below: Lowered) -> None:
        self.below = below
        self.values: list[ScalarExpr] = []
        self.aggregates: list[AggregateExpr] = []

    def value(self, expr: ScalarExpr) -> int:
        if expr not in self.values:
            self.values.append(expr)
        return self.values.index(expr)

    def count_rows(self) -> None:
        self.stand_in(AggregateExpr("count", None, ColumnType(BIGINT, False)))

    def stand_in(self, made: AggregateExpr) -> ColumnRef:
        if made not in self.aggregates:
            self.aggregates.append(made)
        return ColumnRef(FIRST_STAND_IN + self.aggregates.index(made), made.type.type, made.type.nullable)


@dataclass(frozen=True)
class AggregateSite:
    """One aggregate call in the text: its function's node, its FILTER (`condition`) and DISTINCT."""

    calls: AggregateCalls
    function: CatalystNode
    condition: ScalarExpr | None
    distinct: bool

    def argument(self, at: int = 0) -> ScalarExpr:
        return self.calls.below.expression(self.function.children[at])

    def aggregate(
        self,
        name: str,
        argument: ScalarExpr | None,
        *also: ScalarExpr,
        order: tuple[tuple[ScalarExpr, OrderKey], ...] = (),
        parameters: tuple[Literal, ...] = (),
    ) -> ColumnRef:
        """The stand-in of aggregate `name` over the rows for which the FILTER and `also` are true."""
        entry, of = AGGREGATES[name], None if argument is None else argument.type
        result = result_type(name, of)
        if result is None:
            refuse("TYPE", f"there is no {name} of {of}: cast its argument", word=name)
        conditions = (*(() if self.condition is None else (self.condition,)), *also)
        condition = conjunction(conditions) if conditions else None
        made = AggregateExpr(
            name,
            None if argument is None else self._guarded(argument, condition),
            ColumnType(result, not entry.never_null),
            distinct=self.distinct and entry.distinct and argument is not None,
            filter=None if condition is None else self.calls.value(condition),
            order=tuple(OrderKey(self._guarded(e, condition), k.descending, k.nulls_last) for e, k in order),
            parameters=parameters,
        )
        return self.calls.stand_in(made)

    def _guarded(self, value: ScalarExpr, condition: ScalarExpr | None) -> int:
        """The position of the value. A value that can fail is evaluated only in rows that meet the condition."""
        if condition is not None and is_fallible(value):
            value = call("case", (condition, value), value.type)
        return self.calls.value(value)


def as_struct(arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    """Several values as one struct."""
    fields = ((f"_{at}", a.type) for at, a in enumerate(arguments))
    return call("named_struct", arguments, SqlType.struct(fields))


def not_null_conditions(*values: ScalarExpr) -> tuple[ScalarExpr, ...]:
    """The conditions that the values are not NULL, for those that may be."""
    return tuple(call("is_not_null", (v,), BOOLEAN) for v in values if is_nullable(v) or is_fallible(v))
