"""What every kind of reduce begins with: rows of the keys and the values, evaluated once.

(region, price, discount)  ──mfp──>  (region, price * (1 - discount))      key = (0,), values = (1,)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.plan.expr import ScalarExpr, is_nullable
from tidemark_protocol.plan.lir import Aggregate, Reduce, Schema
from tidemark_protocol.types import ColumnType
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.key_columns import prepare
from tidemark_replica.render.plan.lowering_stream import Flow


@dataclass(frozen=True)
class Grouped:
    """A stream whose columns at `key` are to be grouped by, and where it holds each of the reduce's values."""

    flow: Flow
    key: tuple[int, ...]
    values: tuple[int, ...]
    texts: tuple[str, ...]
    """The values' SQL."""
    key_schema: Schema

    def output(self, aggregates: Sequence[Aggregate]) -> Schema:
        """The columns of a part that computes these aggregates: the key's, then one for each."""
        return self.key_schema + tuple(a.type for a in aggregates)

    def column(self, value: int | None) -> int | None:
        """Where the stream holds a value, if there is one."""
        return None if value is None else self.values[value]

    def text(self, aggregate: Aggregate) -> str:
        """The aggregate as error rows name it."""
        argument = "*" if aggregate.argument is None else self.texts[aggregate.argument]
        return f"{aggregate.function}({'DISTINCT ' if aggregate.distinct else ''}{argument})"


def grouped(scope: Scope, plan: Reduce, flow: Flow) -> Grouped:
    """The reduce's input, with its expressions evaluated."""
    rows = prepare(flow.schema, (*plan.key, *plan.values))
    key, values = rows.positions[: len(plan.key)], rows.positions[len(plan.key) :]
    schema = tuple(_column_type(k) for k in plan.key)
    return Grouped(scope.flows.mfp(flow, rows.mfp), key, values, tuple(to_sql(v) for v in plan.values), schema)


def _column_type(expr: ScalarExpr) -> ColumnType:
    return ColumnType(expr.type, is_nullable(expr))
