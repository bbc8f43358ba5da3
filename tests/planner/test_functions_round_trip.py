"""Every function over all its types: its text round-trips, and its errors and nullability hold."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.classic.column import Column as ClassicColumn

from tests.evaluator.edges import EDGES
from tests.planner.every_call import ROW, calls_of
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.expressions.round_trip import check_round_trip
from tidemark_planner.rules.scalar import is_null_where
from tidemark_protocol.functions.registry import FUNCTIONS, is_fallible
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import Call, ColumnRef
from tidemark_protocol.plan.lir import Get, MapFilterProject, Mfp

pytestmark = [pytest.mark.spark, pytest.mark.broad]

ROWS, AT_ONCE = 250, 200
GROUPS = 8
"""Functions are dealt to this many tests, of which each takes some seconds."""
# What stands inside functions of functions only is tested there.
EVERY = [name for name in FUNCTIONS if name not in ("lambda", "variable")]


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


@pytest.mark.parametrize("function", EVERY)
def test_agree_text_and_tree_for_every_combination_of_types(catalyst: Catalyst, function: str) -> None:
    """The text of each call, analysed by Spark over the same columns, gives the call back."""
    calls = tuple(dict.fromkeys(calls_of(function)))
    assert calls
    plan = Mfp(Get(GlobalId("row"), ROW), MapFilterProject(ROW, calls))

    try:
        check_round_trip(catalyst, [plan])
    finally:
        catalyst.drop_relations()


@pytest.mark.parametrize("group", range(GROUPS))
def test_must_never_raise_in_infallible_calls(rows: DataFrame, group: int) -> None:
    """Over edge values, no infallible call raises, and no call that is never NULL is NULL."""
    every = dict.fromkeys(c for function in EVERY[group::GROUPS] for c in calls_of(function))
    calls = [c for c in every if not is_fallible(c)]
    counts = _sums(rows, [_raised_or_null(rows, call) for call in calls])
    broken = [to_sql(call) for call, count in zip(calls, counts, strict=True) if count]

    assert len(calls) > 500 / GROUPS / 2
    assert broken == []


@pytest.mark.parametrize("group", range(GROUPS))
def test_must_be_null_where_it_is_said_to_be(rows: DataFrame, group: int) -> None:
    """A call that is NULL where a column is NULL: the property that turns outer joins into inner ones."""
    null_calls = [found for function in EVERY[group::GROUPS] for found in _said_to_be_null(function)]
    counts = _sums(rows, [_is_something(rows, call, at) for call, at in null_calls])
    broken = [f"{to_sql(call)} where c{at} is NULL" for (call, at), n in zip(null_calls, counts, strict=True) if n]

    assert len(null_calls) > 250 / GROUPS / 2
    assert broken == []


def _sums(rows: DataFrame, columns: list[Any]) -> list[int]:
    """The sum of each column, in the order given. Spark's time for a plan grows faster than its columns."""
    sums = list[int]()
    for start in range(0, len(columns), AT_ONCE):
        named = [column.alias(f"e{n}") for n, column in enumerate(columns[start : start + AT_ONCE])]
        sums += rows.select(*named).groupBy().sum().collect()[0]
    return sums


def _said_to_be_null(function: str) -> Iterator[tuple[Call, int]]:
    """Calls, each with a column whose NULL makes it NULL: two per argument."""
    found: Counter[tuple[int, int]] = Counter()
    for call in dict.fromkeys(calls_of(function)):
        for place, argument in enumerate(call.arguments):
            if not isinstance(argument, ColumnRef) or call.arguments.count(argument) > 1:
                continue
            if is_null_where(call, frozenset({argument.index})):
                found[len(call.arguments), place] += 1
                if found[len(call.arguments), place] <= 2:
                    yield call, argument.index


def _is_something(rows: DataFrame, call: Call, at: int) -> Any:
    """1 where the column is NULL, and the call is neither NULL nor an error."""
    found = functions.col(f"c{at}").isNull() & _tried(rows, call).getField("v").isNotNull()
    return functions.coalesce(found.cast("int"), functions.lit(0))


def _raised_or_null(rows: DataFrame, call: Call) -> Any:
    """1 where the call raises, or is NULL although it is never NULL."""
    evaluated = _tried(rows, call)
    failed = evaluated.isNull()
    if not call.nullable:
        failed = failed | evaluated.getField("v").isNull()
    return failed.cast("int")


@cache
def _jvm_classes(session: SparkSession) -> tuple[Any, Any]:
    """ExpressionUtils and TryEval. Each package in their names is asked of the JVM, so they are kept."""
    sql = session._jvm.org.apache.spark.sql
    return sql.classic.ExpressionUtils, sql.catalyst.expressions.TryEval


def _tried(rows: DataFrame, call: Call) -> Any:
    """A struct of the call's value; NULL where it raises."""
    utils, try_eval = _jvm_classes(rows.sparkSession)
    wrapped = utils.expression(functions.expr(f"named_struct('v', {to_sql(call)})")._jc)
    return ClassicColumn(utils.column(try_eval(wrapped)))
