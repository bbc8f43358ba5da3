"""Failures at every position of every admitted function, beside NULLs, and below one another.

a + F       F is  if(1 div n > 0, c, d)            Catalyst fails as a whole
                  if(b AND 1 div n > 0, c, d)      computed in parts, as AND forgives what Catalyst does not
                  either one, as a mapped column
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import pytest

from tests.evaluator.admitted_functions import admitted_calls
from tests.evaluator.batch_comparison import Asked, check, rows_of
from tests.evaluator.trees import COLUMNS, MILD, OF_TREES, SCHEMA, functions, tree
from tests.oracle.seeds import seeds
from tests.planner.every_call import ROW
from tidemark_protocol.functions.registry import FUNCTIONS, call, is_fallible
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr, columns_of, walk
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import BIGINT, BOOLEAN, ColumnType, SqlType
from tidemark_replica.evaluator import admits

pytestmark = [pytest.mark.spark, pytest.mark.broad]

AT_ONCE = 60
MOST_FEW, MOST = 360, 3600
"""The multiples of AT_ONCE that some calls of every function, and all calls, fill."""
WIDTH = len(ROW)
OF = {str(c.type): n for n, c in enumerate(ROW) if c.nullable}
NUMBER, FLAG = ColumnRef(OF["bigint"], BIGINT), ColumnRef(OF["boolean"], BOOLEAN)
POSITIVE = call(">", (call("div", (Literal("1", BIGINT), NUMBER), BIGINT), Literal("0", BIGINT)), BOOLEAN)
IN_PARTS = call("and", (FLAG, POSITIVE), BOOLEAN)


def failing(condition: ScalarExpr, of: SqlType) -> ScalarExpr:
    """An expression of the type that fails where the condition does."""
    at = OF[str(of)]
    return call("if", (condition, ColumnRef(at, of), ColumnRef(at + 1, of, False)), of)


def with_argument(of: Call, position: int, argument: ScalarExpr) -> Call:
    arguments = (*of.arguments[:position], argument, *of.arguments[position + 1 :])
    return call(of.function, arguments, of.type)


def with_failures(of: Call) -> Iterator[Asked]:
    """The call with each argument in turn replaced by one that fails."""
    for position, argument in enumerate(of.arguments):
        if str(argument.type) not in OF or not isinstance(argument, ColumnRef):
            continue
        whole, in_parts = failing(POSITIVE, argument.type), failing(IN_PARTS, argument.type)
        yield Asked(with_argument(of, position, whole))
        yield Asked(with_argument(of, position, in_parts))
        yield Asked(with_argument(of, position, ColumnRef(WIDTH, argument.type)), in_parts)


@cache
def all_asked() -> dict[str, list[Asked]]:
    """All admitted calls with failing arguments, by function."""
    return {name: [a for each in calls for a in with_failures(each)] for name, calls in admitted_calls().items()}


def every() -> list[Asked]:
    return [each for asked in all_asked().values() for each in asked]


def few() -> list[Asked]:
    """Some of each function."""
    asked = all_asked()
    return [each for name in asked for each in random.Random(name).sample(asked[name], min(len(asked[name]), 9))]


def test_every_admitted_function_is_given_arguments_that_fail() -> None:
    """But those whose failures a rule of Catalyst's may take away, which stay Catalyst's."""
    met = {a.expr.function for a in few() if a.is_admitted(WIDTH) and isinstance(a.expr, Call)}
    assert set(admitted_calls()) - met == {"is_null", "is_not_null", "<=>", "isnan"}
    assert functions() == set(admitted_calls())
    for asked, most in ((few(), MOST_FEW), (every(), MOST)):
        assert most - AT_ONCE < len(asked) <= most


@pytest.mark.parametrize("start", range(0, MOST_FEW, AT_ONCE))
def test_agree_on_an_argument_that_fails(spark: Any, start: int) -> None:
    """Some calls of every function."""
    assert check(spark, ROW, few()[start : start + AT_ONCE], rows_of(ROW, start)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, MOST, AT_ONCE))
def test_agree_on_an_argument_that_fails_of_every_type(spark: Any, start: int) -> None:
    """All admitted calls."""
    assert check(spark, ROW, every()[start : start + AT_ONCE], rows_of(ROW, start)) > 0


DEPTH, TREES = 7, 90


def random_trees(seed: int) -> Iterator[Asked]:
    """Trees over the row, and over a mapped column that is such a tree itself, wherever it stands."""
    rng = random.Random(seed)
    while True:
        of, mapped = rng.choice(OF_TREES), rng.choice(OF_TREES)
        if rng.random() < 0.5:
            yield Asked(tree(rng, of, rng.randint(3, DEPTH), COLUMNS))
            continue
        column = ColumnRef(len(SCHEMA), mapped)
        others = [c for c in COLUMNS if c.type != mapped or rng.random() < 0.5]
        expr = tree(rng, of, rng.randint(1, DEPTH - 1), (*others, column))
        if column.index in columns_of(expr):
            yield Asked(expr, tree(rng, mapped, rng.randint(1, DEPTH - 1), COLUMNS))


def connects_failures(expr: ScalarExpr) -> bool:
    """Whether an AND or OR forgives failures in it."""
    return any(isinstance(n, Call) and n.function in ("and", "or") and is_fallible(n) for n in walk(expr))


def interest(asked: Asked) -> int:
    """2: a function above an AND that forgives; 1: such an AND; 0: anything else."""
    expr = asked.whole(len(SCHEMA))
    calls = (n for n in walk(expr) if isinstance(n, Call) and not FUNCTIONS[n.function].lazy and len(n.arguments) > 1)
    return 2 if any(any(map(connects_failures, n.arguments)) for n in calls) else int(connects_failures(expr))


def check_trees(spark: Any, seed: int) -> None:
    width = len(SCHEMA)
    asked = [a for a in islice(random_trees(seed), 60 * TREES) if is_fallible(a.whole(width)) and a.is_admitted(width)]
    plain, connecting, above = ([a for a in asked if interest(a) == n] for n in range(3))
    assert above
    chosen = [*above, *connecting[: TREES // 3], *plain][:TREES]
    assert check(spark, SCHEMA, chosen, rows_of(SCHEMA, seed, MILD)) > TREES


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_agree_on_trees_that_fail_here_and_there(spark: Any, seed: int) -> None:
    """Failures below failures, in every function, five deep."""
    check_trees(spark, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(40))
def test_agree_on_more_trees(spark: Any, seed: int) -> None:
    """TIDEMARK_ORACLE_SEEDS and TIDEMARK_ORACLE_FIRST_SEED say how many, and which."""
    check_trees(spark, 1000 + seed)


A, B, ONE = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT), Literal("1", BIGINT)


def test_a_mapped_column_that_may_have_failed_counts_as_one_that_may_fail() -> None:
    """Catalyst takes the failure away in a list that holds it, in a comparison with itself, and beside NULL."""
    quotient, mapped, null = call("div", (ONE, B), BIGINT), ColumnRef(2, BIGINT), Literal(None, BIGINT)
    row = (ColumnType(BIGINT), ColumnType(BIGINT))
    for later in (
        call("in", (A, ONE, mapped), BOOLEAN),
        call("<=>", (mapped, mapped), BOOLEAN),
        call("=", (mapped, null), BOOLEAN),
    ):
        assert not admits(MapFilterProject(row, (quotient, later)))
        assert not admits(MapFilterProject(row, (quotient,), (later,)))
        assert admits(MapFilterProject(row, (A, later)))
    assert admits(MapFilterProject(row, (quotient, call("+", (A, mapped), BIGINT))))


def test_a_fallible_expression_beside_a_constant_mapped_column_is_not_admitted() -> None:
    """Catalyst puts it in where it is read, also behind other columns: `a + b = NULL` is NULL, and nothing is added."""
    row = (ColumnType(BIGINT), ColumnType(BIGINT))
    never = call("if", (Literal(None, BOOLEAN), A, B), BIGINT)
    some = call("if", (call("<", (A, B), BOOLEAN), A, B), BIGINT)
    later = call("=", (call("+", (A, B), BIGINT), ColumnRef(2, BIGINT)), BOOLEAN)
    beyond = call("=", (call("+", (A, B), BIGINT), ColumnRef(3, BIGINT)), BOOLEAN)
    moved = call("coalesce", (ColumnRef(2, BIGINT), ONE), BIGINT)

    assert not admits(MapFilterProject(row, (never, later)))
    assert not admits(MapFilterProject(row, (never,), (later,)))
    assert not admits(MapFilterProject(row, (never, moved, beyond)))
    assert admits(MapFilterProject(row, (some, later)))
    assert admits(MapFilterProject(row, (some, moved, beyond)))
