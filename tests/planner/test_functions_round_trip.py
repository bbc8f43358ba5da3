"""Every function over every combination of types that it takes: its text means it, and it keeps its promises."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, functions
from pyspark.sql.classic.column import Column as ClassicColumn

from tests.evaluator.edges import EDGES
from tests.planner.every_call import ROW, calls_of
from tidemark_planner.catalyst import Catalyst
from tidemark_planner.round_trip import check_round_trip
from tidemark_protocol.expr import Call
from tidemark_protocol.functions import FUNCTIONS, is_fallible
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.lir import Get, MapFilterProject, Mfp
from tidemark_protocol.sqltext import to_sql

pytestmark = pytest.mark.spark

ROWS = 250


@pytest.fixture(scope="module")
def rows(catalyst: Catalyst) -> DataFrame:
    """Rows of edge values, independently chosen per column; the odd columns are never NULL."""
    chosen = random.Random(7)
    data = [
        tuple(
            None if column.nullable and chosen.random() < 0.1 else chosen.choice(EDGES[str(column.type)])
            for column in ROW
        )
        for _ in range(ROWS)
    ]
    schema = ", ".join(f"c{n} {c.type}{'' if c.nullable else ' not null'}" for n, c in enumerate(ROW))
    spark = catalyst._spark
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    return spark.createDataFrame(data, schema).coalesce(1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_agree_text_and_tree_for_every_combination_of_types(catalyst: Catalyst, function: str) -> None:
    """Written as text and analysed by Spark over the same columns, each call is the call that it was."""
    calls = tuple(dict.fromkeys(calls_of(function)))
    assert calls
    plan = Mfp(Get(GlobalId("row"), ROW), MapFilterProject(ROW, calls))

    try:
        check_round_trip(catalyst, [plan])
    finally:
        catalyst.forget()


def test_must_never_raise_what_is_said_never_to_fail(rows: DataFrame) -> None:
    """Over edge values, no infallible call raises, and no call that is said never to be NULL is NULL."""
    every = dict.fromkeys(c for function in FUNCTIONS for c in calls_of(function))
    calls = [c for c in every if not is_fallible(c)]
    columns = [_raised_or_null(rows, call).alias(f"e{n}") for n, call in enumerate(calls)]
    counts = rows.select(*columns).groupBy().sum().collect()[0]
    broken = [to_sql(call) for call, count in zip(calls, counts, strict=True) if count]

    assert len(calls) > 500
    assert broken == []


def _raised_or_null(rows: DataFrame, call: Call) -> Any:
    """1 for a row on which the call raises, or is NULL though it says that it never is."""
    jvm = rows.sparkSession._jvm
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    wrapped = utils.expression(functions.expr(f"named_struct('v', {to_sql(call)})")._jc)
    evaluated = ClassicColumn(utils.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(wrapped)))
    failed = evaluated.isNull()
    if not call.nullable:
        failed = failed | evaluated.getField("v").isNull()
    return failed.cast("int")
