"""The Arrow evaluator cannot be told from Catalyst: values, failures and errors, over edge values of every type."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.evaluator.at_once import ROWS, frame_of, rows_of
from tests.oracle.world import plain
from tests.planner.every_call import TYPES, calls_of
from tidemark_protocol.expr import ColumnRef, Literal, ScalarExpr, columns_of
from tidemark_protocol.functions import FUNCTIONS, call
from tidemark_protocol.lir import MapFilterProject
from tidemark_protocol.sqltext import to_sql
from tidemark_protocol.types import BIGINT, BOOLEAN, STRING, ColumnType
from tidemark_replica.arrangement.columns import canonical
from tidemark_replica.arrow_types import arrow_type
from tidemark_replica.evaluator import admits, evaluation
from tidemark_replica.evaluator.functions import admits_expression, compiled
from tidemark_replica.evaluator.result import Result
from tidemark_replica.render import catalyst
from tidemark_replica.render.mfp import Select, compile_mfp
from tidemark_replica.render.scalar import Binding

pytestmark = pytest.mark.spark

AT_ONCE = 60


def by_catalyst(spark: Any, mfp: MapFilterProject, batch: pa.RecordBatch) -> pa.Table:
    return catalyst.apply(frame_of(spark, mfp.input, batch), compile_mfp(mfp)).toArrow()


def rows(table: Any) -> Counter[tuple[Any, ...]]:
    """Rows; `__time` is the number of the input row, so their order does not matter."""
    return Counter(zip(*(map(plain, c.to_pylist()) for c in table.columns), strict=True))


def check(spark: Any, mfp: MapFilterProject, seed: int) -> None:
    batch = rows_of(mfp.input, seed)
    ours, theirs = evaluation(mfp)(batch), by_catalyst(spark, mfp, batch)

    assert ours.schema.types == theirs.schema.types
    found, expected = rows(ours), rows(theirs)
    assert found == expected, f"only ours {list(found - expected)[:3]}, only Catalyst's {list(expected - found)[:3]}"


ROW = tuple(ColumnType(of, nullable) for of in TYPES for nullable in (True, False))
ADMITTED = [c for name in FUNCTIONS for c in dict.fromkeys(calls_of(name)) if admits_expression(c)]


def test_a_good_part_of_the_allow_list_is_admitted() -> None:
    """What TPC-H needs, at the least."""
    names = {c.function for c in ADMITTED}
    assert {"+", "-", "*", "=", "<", "and", "or", "case", "like", "year", "substring", "in", "cast"} <= names
    assert len(ADMITTED) > 300


@pytest.mark.parametrize("start", range(0, len(ADMITTED), AT_ONCE))
def test_agree_on_every_admitted_call(spark: Any, start: int) -> None:
    """Value by value, and failure by failure."""
    calls = ADMITTED[start : start + AT_ONCE]
    batch = rows_of(ROW, start)
    guarded = [Binding(f"r{n}", f"named_struct('v', {to_sql(c)})", guarded=True) for n, c in enumerate(calls)]
    frame = catalyst.apply(frame_of(spark, ROW, batch), Select((tuple(guarded),), None, (), names_of(len(calls))))
    theirs = frame.toArrow()
    inputs = [Result(c) for c in batch.columns]

    for n, expr in enumerate(calls):
        result = compiled(expr)(inputs.__getitem__, ROWS)
        failed = [False] * ROWS if result.failed is None else result.failed.tolist()
        ours = [FAILED if f else plain(v) for f, v in zip(failed, listed(canonical(result.values)), strict=True)]
        column = theirs.column(n).combine_chunks()
        answered = column.is_valid().to_pylist()
        expected = [plain(v) if a else FAILED for v, a in zip(listed(column.field(0)), answered, strict=True)]
        wrong = [(o, e, at) for at, (o, e) in enumerate(zip(ours, expected, strict=True)) if o != e]
        assert result.values.type == arrow_type(expr.type), to_sql(expr)
        assert wrong == [], (to_sql(expr), [inputs[c].values[wrong[0][2]] for c in sorted(columns_of(expr))])


FAILED = "failed"


def listed(values: pa.Array) -> list[Any]:
    """Dates as days: Python has none beyond the year 9999."""
    return (values.view(pa.int32()) if pa.types.is_date32(values.type) else values).to_pylist()


def names_of(count: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"r{n}", f"r{n}") for n in range(count))


def random_expr(rng: random.Random, of: str, depth: int) -> ScalarExpr:
    """An expression of bigint or boolean over columns a, b (bigint), s (string); parts of it fail now and then."""
    if of == "number":
        if depth == 0 or rng.random() < 0.2:
            return rng.choice([A, B, Literal("1", BIGINT), Literal(None, BIGINT)])
        parts = (random_expr(rng, of, depth - 1), random_expr(rng, of, depth - 1))
        name = rng.choice(["+", "-", "*", "div", "div", "%", "case", "coalesce", "if"])
        if name == "coalesce":
            return call(name, parts, BIGINT)
        if name in ("case", "if"):
            return call(name, (random_expr(rng, "condition", depth - 1), *parts), BIGINT)
        return call(name, parts, BIGINT)
    if depth == 0:
        return rng.choice([call("is_null", (A,), BOOLEAN), call("like", (S, Literal("a%", STRING)), BOOLEAN)])
    name = rng.choice(["and", "or", "not", "=", "<", "<=>", "is_null", "in"])
    if name in ("and", "or"):
        count = rng.randint(2, 3)
        return call(name, tuple(random_expr(rng, "condition", depth - 1) for _ in range(count)), BOOLEAN)
    if name == "not":
        return call(name, (random_expr(rng, "condition", depth - 1),), BOOLEAN)
    left, right = random_expr(rng, "number", depth - 1), random_expr(rng, "number", depth - 1)
    if name == "is_null":
        return call(name, (left,), BOOLEAN)
    if name == "in":
        choices: list[ScalarExpr] = [A, B, Literal("1", BIGINT), Literal(None, BIGINT), Literal("0", BIGINT)]
        return call(name, (left, *rng.sample(choices, rng.randint(1, 4))), BOOLEAN)
    return call(name, (left, right), BOOLEAN)


A, B, S = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT), ColumnRef(2, STRING)
SMALL = (ColumnType(BIGINT), ColumnType(BIGINT), ColumnType(STRING))


def random_mfps(seed: int) -> Iterator[MapFilterProject]:
    rng = random.Random(seed)
    for _ in range(60):
        mapped = tuple(random_expr(rng, rng.choice(["number", "condition"]), 3) for _ in range(rng.randint(0, 2)))
        predicates = tuple(random_expr(rng, "condition", 3) for _ in range(rng.randint(0, 2)))
        width = len(SMALL) + len(mapped)
        later = call("+", (ColumnRef(width - 1, BIGINT), A), BIGINT) if mapped and mapped[-1].type == BIGINT else None
        exprs = mapped if later is None else (*mapped, later)
        whole = range(len(SMALL) + len(exprs))
        yield MapFilterProject(SMALL, exprs, predicates, tuple(rng.sample(whole, rng.randint(1, len(whole)))))


@pytest.mark.parametrize("seed", range(6))
def test_agree_on_nested_expressions_that_fail_here_and_there(spark: Any, seed: int) -> None:
    """Failures under AND, OR, CASE, COALESCE, NULL and one another; predicates, mapped columns, outputs not shown."""
    admitted = [mfp for mfp in random_mfps(seed) if admits(mfp)]
    assert len(admitted) >= 8
    for number, mfp in enumerate(admitted[:12]):
        check(spark, mfp, seed * 100 + number)


ONE, LESS, MOST = Literal("1", BIGINT), Literal("-1", BIGINT), Literal(str(2**63 - 1), BIGINT)
SIMPLIFIED = [
    call("+", (call("+", (A, MOST), BIGINT), LESS), BIGINT),
    call("*", (LESS, call("*", (MOST, call("*", (A, B), BIGINT)), BIGINT)), BIGINT),
    call(
        "if",
        (call(">", (call("+", (A, B), BIGINT), ONE), BOOLEAN), *(call("*", p, BIGINT) for p in ((A, B), (B, A)))),
        BIGINT,
    ),
]


@pytest.mark.parametrize("expr", SIMPLIFIED, ids=to_sql)
def test_what_catalyst_would_shorten_is_left_to_it(expr: ScalarExpr) -> None:
    """Constants put together, and equal branches, take failures away that a batch would not have either."""
    assert not admits_expression(expr)


def test_a_list_that_holds_columns_is_admitted_unless_they_fail() -> None:
    """IN is written out as comparisons, and OR would forgive a failure that IN does not."""
    assert admits_expression(call("in", (A, ONE, B, Literal(None, BIGINT)), BOOLEAN))
    assert not admits_expression(call("in", (A, call("div", (ONE, B), BIGINT)), BOOLEAN))


def test_one_constant_in_a_chain_is_admitted() -> None:
    """There is nothing to put together."""
    assert admits_expression(call("+", (call("+", (A, ONE), BIGINT), B), BIGINT))
