"""Failures that Catalyst's optimiser removes: where Spark's batch answers, evaluation in parts answers too.

F is  b AND 1 div n > 0            if(F, c, c) is c     if(F, 1, 2) IS NULL is false     f AND (f OR F) is f
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import pytest

from tests.evaluator.batch_comparison import FAILED, Asked, by_catalyst, check, rows_of
from tests.evaluator.test_agree_failing import DEPTH, FLAG, IN_PARTS, NUMBER, OF, connects_failures, failing
from tests.evaluator.trees import COLUMNS, MILD, OF_TREES, SCHEMA, tree
from tests.oracle.seeds import seeds
from tests.planner.every_call import ROW
from tidemark_protocol.functions.registry import call
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.types import BIGINT, BOOLEAN, INT, STRING, SqlType
from tidemark_replica.evaluator.functions import admits_expression
from tidemark_replica.evaluator.simplified import keeps_failures

pytestmark = [pytest.mark.spark, pytest.mark.broad]

TREES = 30
ONE, TWO, TEXT = Literal("1", BIGINT), Literal("2", BIGINT), ColumnRef(OF["string"], STRING)
CHOICE = call("if", (IN_PARTS, ONE, TWO), BIGINT)
PAIR = call("named_struct", (NUMBER, IN_PARTS), SqlType.struct((("p", BIGINT), ("q", BOOLEAN))))
PAIRS = call("array", (PAIR,), SqlType.array(PAIR.type))
FLAGS = call("array", (FLAG, IN_PARTS), SqlType.array(BOOLEAN))
FIRST = Literal("0", INT)
INTS = ColumnRef(OF["int"], INT), ColumnRef(OF["int"] + 1, INT, False)
NEVER_NULL = call("coalesce", (call("if", (IN_PARTS, *INTS), INT), FIRST), INT)


def _boolean(function: str, *arguments: ScalarExpr) -> Call:
    return call(function, arguments, BOOLEAN)


def _compared(function: str, *values: int) -> Call:
    """With numbers that the type has not."""
    return _boolean(function, call("cast", (NEVER_NULL,), BIGINT), *(Literal(str(v), BIGINT) for v in values))


BEYOND = 3_000_000_000
SETTLED = (
    _boolean("<=>", NUMBER, NUMBER),
    _boolean("is_not_null", call("coalesce", (NUMBER, ONE), BIGINT)),
    _boolean("=", call("coalesce", (NUMBER, ONE), BIGINT), call("coalesce", (NUMBER, ONE), BIGINT)),
)
"""True, whatever the row."""
SIMPLIFIED = (
    *(_compared(operator, BEYOND) for operator in ("=", "<", "<=", ">", ">=")),
    *(_compared(operator, 2**31 - 1) for operator in (">", "<=")),
    *(_compared(operator, -(2**31)) for operator in ("<", ">=")),
    _compared("in", BEYOND, BEYOND + 1),
    _boolean("<", Literal(str(BEYOND), BIGINT), call("cast", (NEVER_NULL,), BIGINT)),
    call("if", (IN_PARTS, TEXT, TEXT), STRING),
    call("case", (IN_PARTS, TEXT, FLAG, TEXT, TEXT), STRING),
    call("+", (call("if", (IN_PARTS, NUMBER, NUMBER), BIGINT), Literal("0", BIGINT)), BIGINT),
    _boolean("is_null", CHOICE),
    _boolean("is_not_null", CHOICE),
    _boolean("<=>", IN_PARTS, IN_PARTS),
    _boolean("=", CHOICE, CHOICE),
    _boolean("and", FLAG, _boolean("or", FLAG, IN_PARTS)),
    call("field", (PAIR, FIRST), BIGINT),
    call("+", (call("field", (PAIR, FIRST), BIGINT), ONE), BIGINT),
    call("field", (PAIRS, FIRST), SqlType.array(BIGINT)),
    call("field", (call("get", (PAIRS, FIRST), PAIR.type), FIRST), BIGINT),
    _boolean("get", FLAGS, FIRST),
    _boolean("subscript", FLAGS, FIRST),
    call("case", (IN_PARTS, call("case", (_boolean("is_null", ONE), FLAG), BOOLEAN)), BOOLEAN),
    *(call("if", (IN_PARTS, settled, _boolean("=", ONE, ONE)), BOOLEAN) for settled in SETTLED),
)


def test_agree_with_a_batch_that_simplifies(spark: Any) -> None:
    """In every one of them, some row has a failure that the batch does not show."""
    asked, batch = [Asked(IN_PARTS), *map(Asked, SIMPLIFIED)], rows_of(ROW, 1)
    check(spark, ROW, asked, batch)
    (failing, *_), (_, *batches) = by_catalyst(spark, ROW, asked, batch)
    for expr, answers in zip(SIMPLIFIED, batches, strict=True):
        rows = zip(failing, answers, strict=True)
        assert not admits_expression(expr)
        assert any(f is FAILED and a is not FAILED for f, a in rows), to_sql(expr)


def chains(of: SqlType) -> Iterator[ScalarExpr]:
    """Chains of three, one of them a literal or none; the last one also computed in parts."""
    first, last, literal = ColumnRef(OF[str(of)], of), ColumnRef(OF[str(of)] + 1, of, False), Literal("3", of)
    for end in (last, failing(IN_PARTS, of)):
        for a, b, c in ((literal, first, end), (first, literal, end), (first, end, literal), (first, last, end)):
            for operator in ("+", "*"):
                yield call(operator, (call(operator, (a, b), of), c), of)
                yield call(operator, (a, call(operator, (b, c), of)), of)


@pytest.mark.parametrize("of", [SqlType("tinyint"), SqlType("smallint"), INT, BIGINT], ids=str)
def test_agree_on_chains_that_catalyst_reorders(spark: Any, of: SqlType) -> None:
    """It adds up what is no constant first, where other rows overflow."""
    asked = list(map(Asked, chains(of)))
    assert check(spark, ROW, asked, rows_of(ROW, 2)) > len(asked)
    assert 0 < sum(a.is_admitted(len(ROW)) for a in asked) < len(asked)


def is_simplified(expr: ScalarExpr) -> bool:
    """Whether it is computed in parts, and Catalyst may take a failure away."""
    return connects_failures(expr) and not keeps_failures(expr, frozenset())


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(40))
def test_agree_with_a_batch_that_simplifies_trees(spark: Any, seed: int) -> None:
    """TIDEMARK_ORACLE_SEEDS and TIDEMARK_ORACLE_FIRST_SEED say how many, and which."""
    rng = random.Random(2000 + seed)
    trees = (tree(rng, rng.choice(OF_TREES), rng.randint(3, DEPTH), COLUMNS) for _ in count())
    asked = [Asked(expr) for expr in islice(filter(is_simplified, trees), TREES)]
    assert check(spark, SCHEMA, asked, rows_of(SCHEMA, seed, MILD)) > TREES
