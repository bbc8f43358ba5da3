"""Catalyst projections from the text of `mfp.py`: the only module that builds Catalyst expressions.

`TryEval(e)` is NULL where `e` raises. SQL has no name for it, so it is built through py4j. It needs
`spark.sql.subexpressionElimination.enabled=false`: a common part that is evaluated outside would raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from tidemark_protocol.plan.lir import Schema
from tidemark_replica.render.expressions.failable_sql import ColumnBinding
from tidemark_replica.render.expressions.mfp import TAGS, MfpSelect

SLOT = "__slot"


def spark_schema(schema: Schema) -> str:
    """The DDL of a tagged stream."""
    columns = [f"c{i} {column.type}" for i, column in enumerate(schema)]
    return ", ".join([*columns, "__time bigint", "__diff bigint", "__error string"])


def apply(frame: Any, select: MfpSelect) -> Any:
    """Apply the projections and the filter to a DataFrame."""
    for projection in select.before:
        frame = _add(frame, projection)
    if select.keep is not None:
        frame = frame.where(select.keep)
    for projection in select.after:
        frame = _add(frame, projection)
    return frame.selectExpr(*(_named(text, name) for name, text in select.output))


def negate(frame: Any, width: int) -> Any:
    """Negate the diffs of ok rows. Errors are never retracted by a subtraction."""
    columns = [f"c{i}" for i in range(width)]
    diff = "CASE WHEN __error IS NULL THEN - __diff ELSE __diff END AS __diff"
    return frame.selectExpr(*columns, "__time", diff, "__error")


def project(frame: Any, columns: Sequence[int]) -> Any:
    """Some of the columns, in this order."""
    return frame.selectExpr(*(_named(f"c{c}", f"c{i}") for i, c in enumerate(columns)), *TAGS)


def union(frames: Sequence[Any]) -> Any:
    """The union of frames in one partition, one frame's rows after another's."""
    return reduce(lambda a, b: a.union(b), frames).coalesce(1)


def side_by_side(inputs: Sequence[tuple[Any, Schema]]) -> Any:
    """Streams with different columns as one: `__slot` is a row's stream, and the columns of the others are NULL."""
    frames = []
    for slot, (frame, _) in enumerate(inputs):
        columns = [f"{slot} AS {SLOT}"]
        for other, (_, schema) in enumerate(inputs):
            for i, column in enumerate(schema):
                text = f"c{i}" if other == slot else f"CAST(NULL AS {column.type})"
                columns.append(_named(text, f"s{other}_{i}"))
        frames.append(frame.selectExpr(*columns, *TAGS))
    return union(frames)


def _add(frame: Any, projection: Sequence[ColumnBinding]) -> Any:
    from pyspark.sql import functions as F

    added = [_guarded(b).alias(b.name) if b.guarded else F.expr(b.text).alias(b.name) for b in projection]
    return frame.select("*", *added)


def _guarded(binding: ColumnBinding) -> Any:
    from pyspark.sql import functions as F
    from pyspark.sql.classic.column import Column

    jvm = _jvm()
    # A name in one piece is one call to the JVM; each part of `jvm.org.apache` is one more, and searches all jars.
    utils = getattr(jvm, "org.apache.spark.sql.classic.ExpressionUtils")
    try_eval = getattr(jvm, "org.apache.spark.sql.catalyst.expressions.TryEval")
    return Column(utils.column(try_eval(utils.expression(F.expr(binding.text)._jc))))


def _jvm() -> Any:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None, "a DataFrame is being built, so there is a session"
    return context._jvm


def _named(text: str, name: str) -> str:
    return name if text == name else f"{text} AS {name}"
