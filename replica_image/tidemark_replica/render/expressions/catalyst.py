"""Text of `mfp.py` as DataFrames: the one module that builds Catalyst expressions.

`TryEval(e)` is NULL where `e` raises. SQL has no name for it, so it is built through py4j. It is right only with
`spark.sql.subexpressionElimination.enabled=false`: a common part pulled out of two of them would raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from tidemark_protocol.plan.lir import Schema
from tidemark_replica.render.expressions.failable_sql import Binding
from tidemark_replica.render.expressions.mfp import TAGS, Select

SLOT = "__slot"


def spark_schema(schema: Schema) -> str:
    """The tagged stream of a collection, as DDL."""
    columns = [f"c{i} {column.type}" for i, column in enumerate(schema)]
    return ", ".join([*columns, "__time bigint", "__diff bigint", "__error string"])


def apply(frame: Any, select: Select) -> Any:
    """The projections and the filter on a DataFrame."""
    for projection in select.before:
        frame = _add(frame, projection)
    if select.keep is not None:
        frame = frame.where(select.keep)
    for projection in select.after:
        frame = _add(frame, projection)
    return frame.selectExpr(*(_named(text, name) for name, text in select.output))


def negate(frame: Any, width: int) -> Any:
    """Every ok row with the opposite diff; errors are never taken back by a subtraction."""
    columns = [f"c{i}" for i in range(width)]
    diff = "CASE WHEN __error IS NULL THEN - __diff ELSE __diff END AS __diff"
    return frame.selectExpr(*columns, "__time", diff, "__error")


def project(frame: Any, columns: Sequence[int]) -> Any:
    """Some of the columns, in this order."""
    return frame.selectExpr(*(_named(f"c{c}", f"c{i}") for i, c in enumerate(columns)), *TAGS)


def union(frames: Sequence[Any]) -> Any:
    """One stream of all, in one partition, the frames' rows one after the other."""
    return reduce(lambda a, b: a.union(b), frames).coalesce(1)


def side_by_side(inputs: Sequence[tuple[Any, Schema]]) -> Any:
    """Streams of different columns as one: `__slot` says which a row is of, the others' columns are NULL."""
    frames = []
    for slot, (frame, _) in enumerate(inputs):
        columns = [f"{slot} AS {SLOT}"]
        for other, (_, schema) in enumerate(inputs):
            for i, column in enumerate(schema):
                text = f"c{i}" if other == slot else f"CAST(NULL AS {column.type})"
                columns.append(_named(text, f"s{other}_{i}"))
        frames.append(frame.selectExpr(*columns, *TAGS))
    return union(frames)


def _add(frame: Any, projection: Sequence[Binding]) -> Any:
    from pyspark.sql import functions as F

    added = [_guarded(b).alias(b.name) if b.guarded else F.expr(b.text).alias(b.name) for b in projection]
    return frame.select("*", *added)


def _guarded(binding: Binding) -> Any:
    from pyspark.sql import functions as F
    from pyspark.sql.classic.column import Column

    jvm = _jvm()
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    expression = utils.expression(F.expr(binding.text)._jc)
    return Column(utils.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expression)))


def _jvm() -> Any:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None, "a DataFrame is being built, so there is a session"
    return context._jvm


def _named(text: str, name: str) -> str:
    return name if text == name else f"{text} AS {name}"
