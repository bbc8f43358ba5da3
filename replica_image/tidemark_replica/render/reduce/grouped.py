"""The input of every kind of reduce: rows of keys and values, each expression computed once.

(region, price, discount)  ──mfp──>  (region, price * (1 - discount))      key = (0,), values = (1,)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.plan.expr import ScalarExpr, is_nullable
from tidemark_protocol.plan.lir import AggregateExpr, Reduce, Schema
from tidemark_protocol.types import ColumnType
from tidemark_replica.kernels.ranking.state import Retractions
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.key_columns import key_columns
from tidemark_replica.render.plan.lowering_stream import Stream


@dataclass(frozen=True)
class Grouped:
    """A stream, the positions of its key columns, and the position of each value of the reduce."""

    stream: Stream
    key: tuple[int, ...]
    values: tuple[int, ...]
    texts: tuple[str, ...]
    """The SQL text of each value."""
    key_schema: Schema
    retractions: Retractions

    def output(self, aggregates: Sequence[AggregateExpr]) -> Schema:
        """The output columns of a part with these aggregates: the key's, then one per aggregate."""
        return self.key_schema + tuple(a.type for a in aggregates)

    def column(self, value: int | None) -> int | None:
        """The stream's column of a value; None for no value."""
        return None if value is None else self.values[value]

    def text(self, aggregate: AggregateExpr) -> str:
        """The SQL text of an aggregate, as error rows show it."""
        argument = "*" if aggregate.argument is None else self.texts[aggregate.argument]
        return f"{aggregate.function}({'DISTINCT ' if aggregate.distinct else ''}{argument})"


def grouped(scope: Scope, plan: Reduce, stream: Stream) -> Grouped:
    """Compute the reduce's keys and values over its input."""
    rows = key_columns(stream.schema, (*plan.key, *plan.values))
    key, values = rows.positions[: len(plan.key)], rows.positions[len(plan.key) :]
    schema = tuple(_column_type(k) for k in plan.key)
    texts, retractions = tuple(to_sql(v) for v in plan.values), scope.retractions.of(plan.input)
    return Grouped(scope.streams.mfp(stream, rows.mfp), key, values, texts, schema, retractions)


def _column_type(expr: ScalarExpr) -> ColumnType:
    return ColumnType(expr.type, is_nullable(expr))
