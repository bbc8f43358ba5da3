"""The Arrow evaluator agrees with Catalyst: values, failures and errors, over edge values of every type."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from tests.evaluator.admitted_functions import admitted_calls
from tests.evaluator.batch_comparison import Asked, frame_of, listed, rows_of
from tests.evaluator.batch_comparison import check as check_each
from tests.evaluator.trees import COLUMNS, MILD, OF_TREES, SCHEMA, tree
from tests.oracle.harness import plain
from tests.planner.every_call import ROW
from tidemark_protocol.functions.registry import call, is_fallible
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import BIGINT, BOOLEAN, SqlType
from tidemark_replica.evaluator import admits, evaluation
from tidemark_replica.evaluator.functions import admits_expression
from tidemark_replica.render.expressions import catalyst
from tidemark_replica.render.expressions.mfp import compile_mfp

pytestmark = [pytest.mark.spark, pytest.mark.broad]

AT_ONCE, DEPTH = 60, 4
MOST_CALLS = 900
"""The multiple of AT_ONCE that the admitted calls fill."""


def by_catalyst(spark: Any, mfp: MapFilterProject, batch: pa.RecordBatch) -> pa.Table:
    return catalyst.apply(frame_of(spark, mfp.input, batch), compile_mfp(mfp)).toArrow()


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows; `__time` is the number of the input row, so their order does not matter."""
    return Counter(zip(*(map(plain, listed(c.combine_chunks())) for c in table.columns), strict=True))


def check(spark: Any, mfp: MapFilterProject, seed: int) -> None:
    batch = rows_of(mfp.input, seed, MILD)
    ours, theirs = evaluation(mfp)(batch), by_catalyst(spark, mfp, batch)

    assert ours.schema.types == theirs.schema.types
    found, expected = rows(pa.Table.from_batches([ours])), rows(theirs)
    assert found == expected, f"only ours {list(found - expected)[:3]}, only Catalyst's {list(expected - found)[:3]}"


@cache
def calls() -> list[Call]:
    return [each for of_function in admitted_calls().values() for each in of_function]


def test_a_good_part_of_the_allow_list_is_admitted() -> None:
    """The functions that TPC-H needs are admitted, at the least."""
    assert {"+", "-", "*", "=", "<", "and", "or", "case", "like", "year", "substring", "in", "cast"} <= set(
        admitted_calls()
    )
    assert MOST_CALLS - AT_ONCE < len(calls()) <= MOST_CALLS


@pytest.mark.parametrize("start", range(0, MOST_CALLS, AT_ONCE))
def test_agree_on_every_admitted_call(spark: Any, start: int) -> None:
    """Value by value, and failure by failure."""
    check_each(spark, ROW, list(map(Asked, calls()[start : start + AT_ONCE])), rows_of(ROW, start))


def random_mfps(seed: int) -> Iterator[MapFilterProject]:
    """Each mapped column may be read by what comes behind it, at any place."""
    rng = random.Random(seed)
    while True:
        columns, mapped = [*COLUMNS], list[ScalarExpr]()
        for position in range(len(SCHEMA), len(SCHEMA) + rng.randint(0, 3)):
            of = rng.choice(OF_TREES)
            mapped.append(tree(rng, of, rng.randint(1, DEPTH), columns))
            columns = [*(c for c in columns if c.type != of or rng.random() < 0.5), ColumnRef(position, of)]
        predicates = tuple(tree(rng, BOOLEAN, rng.randint(1, DEPTH), columns) for _ in range(rng.randint(0, 2)))
        whole = range(len(SCHEMA) + len(mapped))
        yield MapFilterProject(SCHEMA, tuple(mapped), predicates, tuple(rng.sample(whole, rng.randint(1, len(whole)))))


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 6))])
def test_agree_on_nested_expressions_that_fail_here_and_there(spark: Any, seed: int) -> None:
    """Failures under AND, OR, CASE, COALESCE, NULL and one another; predicates, mapped columns, outputs not shown."""
    admitted = [mfp for mfp in islice(random_mfps(seed), 200) if admits(mfp) and can_fail(mfp)]
    assert len(admitted) >= 12
    for number, mfp in enumerate(admitted[:12]):
        check(spark, mfp, seed * 100 + number)


def can_fail(mfp: MapFilterProject) -> bool:
    return any(map(is_fallible, (*mfp.expressions, *mfp.predicates)))


A, B = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)


ONE, LESS, MOST = Literal("1", BIGINT), Literal("-1", BIGINT), Literal(str(2**63 - 1), BIGINT)
SIMPLIFIED = [
    call("+", (call("+", (A, MOST), BIGINT), LESS), BIGINT),
    call("*", (LESS, call("*", (MOST, call("*", (A, B), BIGINT)), BIGINT)), BIGINT),
    call("+", (call("+", (A, ONE), BIGINT), B), BIGINT),
    call(
        "if",
        (call(">", (call("+", (A, B), BIGINT), ONE), BOOLEAN), *(call("*", p, BIGINT) for p in ((A, B), (B, A)))),
        BIGINT,
    ),
]


@pytest.mark.parametrize("expr", SIMPLIFIED, ids=to_sql)
def test_expressions_that_catalyst_shortens_are_left_to_it(expr: ScalarExpr) -> None:
    """Constants put together, or behind all else, and equal branches take failures away that a batch would not have
    either."""
    assert not admits_expression(expr)


def test_a_list_that_holds_columns_is_admitted_unless_they_fail() -> None:
    """IN is written out as comparisons, and OR would forgive a failure that IN does not."""
    assert admits_expression(call("in", (A, ONE, B, Literal(None, BIGINT)), BOOLEAN))
    assert not admits_expression(call("in", (A, call("div", (ONE, B), BIGINT)), BOOLEAN))


def test_a_constant_at_the_end_of_a_chain_is_admitted() -> None:
    """There Catalyst would put it. Of two it does not matter; decimals it leaves as they are."""
    assert admits_expression(call("+", (call("+", (A, B), BIGINT), ONE), BIGINT))
    assert admits_expression(call("+", (ONE, A), BIGINT))
    money, more = SqlType("decimal", 15, 2), SqlType("decimal", 16, 2)
    price = ColumnRef(0, money)
    once = call("+", (price, Literal("1.50", money)), more)
    assert admits_expression(call("+", (once, price), SqlType("decimal", 17, 2)))
