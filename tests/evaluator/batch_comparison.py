"""Many expressions over the same rows in one Spark job, each by itself, in three ways.

    compiled(e)            Arrow's closure                       value | FAILED, row by row
    Lifter().lift(e)       text in parts, as an MFP has it       value | FAILED      must be Arrow's, in every row
    TryEval(e)             the text as a batch would have it     value | FAILED      where it answers, so do both others

An expression may read a `mapped` column, which is an expression of its own and may have failed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.evaluator.edges import EDGES
from tests.oracle.harness import plain
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, columns_of
from tidemark_protocol.types import ColumnType
from tidemark_replica.arrangement.rows.columns import canonical
from tidemark_replica.evaluator.functions import admits_expression, compiled
from tidemark_replica.evaluator.result import Result
from tidemark_replica.evaluator.simplified import can_fail, keeps_failures, may_be_constant
from tidemark_replica.render.expressions import catalyst
from tidemark_replica.render.expressions.failable_sql import ColumnBinding, Lifted, Lifter
from tidemark_replica.render.expressions.mfp import MfpSelect
from tidemark_replica.values.arrow_types import arrow_type

ROWS = 300
FAILED = "failed"


@dataclass(frozen=True)
class Asked:
    """An expression; it reads `mapped`, where there is one, as the column behind the row's."""

    expr: ScalarExpr
    mapped: ScalarExpr | None = None

    def is_admitted(self, width: int) -> bool:
        """Whether Arrow may answer."""
        if self.mapped is None:
            return admits_expression(self.expr)
        failing = frozenset({width}) if can_fail(self.mapped, frozenset()) else frozenset[int]()
        constant = frozenset({width}) if may_be_constant(self.mapped, frozenset()) else frozenset[int]()
        return admits_expression(self.mapped) and admits_expression(self.expr, failing, constant)

    def whole(self, width: int) -> ScalarExpr:
        """In one tree."""
        return self.expr if self.mapped is None else _with_column(self.expr, width, self.mapped)


def _with_column(expr: ScalarExpr, index: int, value: ScalarExpr) -> ScalarExpr:
    if isinstance(expr, ColumnRef):
        return value if expr.index == index else expr
    if isinstance(expr, Call):
        arguments = tuple(_with_column(a, index, value) for a in expr.arguments)
        return Call(expr.function, arguments, expr.type, expr.nullable)
    return expr


def rows_of(
    schema: tuple[ColumnType, ...], seed: int, edges: dict[str, list[Any]] = EDGES, rows: int = ROWS
) -> pa.RecordBatch:
    """Edge values of every column, independently chosen; every fifth row is an errs row."""
    rng = random.Random(seed)
    errors = [f"e{n}" if n % 5 == 4 else None for n in range(rows)]
    columns = []
    for of in schema:
        values = [
            None if error or (of.nullable and rng.random() < 0.15) else rng.choice(edges[str(of.type)])
            for error in errors
        ]
        columns.append(canonical(pa.array(values, arrow_type(of.type))))
    names = [*(f"c{n}" for n in range(len(schema))), "__time", "__diff", "__error"]
    times, diffs = pa.array(range(rows), pa.int64()), pa.array([1] * rows, pa.int64())
    return pa.RecordBatch.from_arrays([*columns, times, diffs, pa.array(errors, pa.string())], names=names)


def frame_of(spark: Any, schema: tuple[ColumnType, ...], batch: pa.RecordBatch) -> Any:
    return spark.createDataFrame(pa.Table.from_batches([batch]), catalyst.spark_schema(schema)).coalesce(1)


def by_arrow(asked: Asked, batch: pa.RecordBatch) -> list[Any]:
    """Row by row, the value or FAILED."""
    inputs = [Result(c) for c in batch.columns[:-3]]
    if asked.mapped is not None:
        inputs.append(compiled(asked.mapped)(inputs.__getitem__, batch.num_rows))
    result = compiled(asked.expr)(inputs.__getitem__, batch.num_rows)
    assert result.values.type == arrow_type(asked.expr.type), to_sql(asked.expr)
    failed = [False] * batch.num_rows if result.failed is None else result.failed.tolist()
    return [FAILED if f else plain(v) for f, v in zip(failed, listed(canonical(result.values)), strict=True)]


def by_catalyst(
    spark: Any, schema: tuple[ColumnType, ...], asked: Sequence[Asked], batch: pa.RecordBatch
) -> tuple[list[list[Any]], list[list[Any]]]:
    """The results of each expression by Catalyst: of its text in parts, and of its text as it is."""
    lifter = Lifter(lambda index: columns[index])
    texts: list[Lifted] = []
    for each in asked:
        columns = {i: Lifted(f"c{i}") for i in range(len(schema))}
        if each.mapped is not None:
            columns[len(schema)] = lifter.keep(lifter.lift(each.mapped))
        texts.append(lifter.lift(each.expr))
    wholes = [
        ColumnBinding(f"w{n}", f"named_struct('v', {to_sql(e.whole(len(schema)))})", True) for n, e in enumerate(asked)
    ]
    texts += [Lifted(f"{b.name}.v", f"({b.name} IS NULL)") for b in wholes]
    projections = (tuple(wholes), *map(tuple, lifter.projections))
    outputs = [("value", t.value) for t in texts], [("failed", t.failed or "FALSE") for t in texts]
    named = tuple((f"{name}{n}", text) for each in outputs for n, (name, text) in enumerate(each))
    frame = catalyst.apply(frame_of(spark, schema, batch), MfpSelect(projections, None, (), named))
    theirs = [column.combine_chunks() for column in frame.toArrow().columns]
    answers = [
        _answers(value, failed) for value, failed in zip(theirs[: len(texts)], theirs[len(texts) :], strict=True)
    ]
    return answers[: len(asked)], answers[len(asked) :]


def check(spark: Any, schema: tuple[ColumnType, ...], asked: Sequence[Asked], batch: pa.RecordBatch) -> int:
    """Raise unless the three agree on every expression; how many (expression, row) failed.

    Where a rule of Catalyst's makes an expression shorter, its batch may answer over a mapped column that failed.
    """
    in_parts, whole = by_catalyst(spark, schema, asked, batch)
    wrong = list[str]()
    for each, part, answers in zip(asked, in_parts, whole, strict=True):
        expression_text = (
            to_sql(each.expr) if each.mapped is None else f"{to_sql(each.expr)} over {to_sql(each.mapped)}"
        )
        if each.is_admitted(len(schema)):
            wrong += differences(f"{expression_text}: Arrow, text in parts", by_arrow(each, batch), part, each, batch)
        if each.mapped is None or keeps_failures(each.whole(len(schema)), frozenset()):
            answered = [p if a is FAILED else a for p, a in zip(part, answers, strict=True)]
            wrong += differences(f"{expression_text}: text in parts, Spark's batch", part, answered, each, batch)
    assert not wrong, "\n".join(wrong)
    return sum(part.count(FAILED) for part in in_parts)


def differences(message: str, ours: list[Any], theirs: list[Any], asked: Asked, batch: pa.RecordBatch) -> list[str]:
    """The first one, and the columns that the expression reads there."""
    columns = sorted(columns_of(asked.whole(batch.num_columns - 3)))
    for at, (o, t) in enumerate(zip(ours, theirs, strict=True)):
        if o != t:
            read = {f"c{n}": listed(batch.column(n).slice(at, 1))[0] for n in columns}
            return [f"{message}: {o!r}, {t!r}, where {read}"]
    return []


def listed(values: pa.Array) -> list[Any]:
    """Dates as days: Python has none beyond the year 9999."""
    return (values.view(pa.int32()) if pa.types.is_date32(values.type) else values).to_pylist()


def _answers(values: pa.Array, failed: pa.Array) -> list[Any]:
    return [FAILED if f else plain(v) for v, f in zip(listed(values), failed.to_pylist(), strict=True)]
