"""Products and sums of decimals that may not fit: each value is exact, or it fails, as Python's and Spark's are."""

from __future__ import annotations

import random
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.evaluator.test_agree_catalyst import check
from tidemark_protocol import decimals
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import ColumnType, SqlType
from tidemark_replica.evaluator.functions import admits_expression
from tidemark_replica.evaluator.wide_decimals import admits_wide, wide
from tidemark_replica.values.arrow_types import arrow_type

EXACT = Context(prec=100)
OPERATORS = {"*": EXACT.multiply, "+": EXACT.add, "-": EXACT.subtract}
ROWS = 500


def decimal(precision: int, scale: int) -> SqlType:
    return SqlType("decimal", precision, scale)


def of(operator: str, left: SqlType, right: SqlType) -> Call:
    arguments = (ColumnRef(0, left), ColumnRef(1, right))
    return Call(operator, arguments, decimals.result_type(operator, left, right))


def drawn(rng: random.Random, type: SqlType, digits: int) -> list[Decimal | None]:
    bound = 10 ** min(digits, type.precision)
    values = [Decimal(rng.randrange(1 - bound, bound)).scaleb(-type.scale, EXACT) for _ in range(ROWS)]
    return [None if rng.random() < 0.1 else value for value in values]


@pytest.mark.parametrize("digits", [1, 9, 19, 38])
@pytest.mark.parametrize(
    ("operator", "left", "right"),
    [
        ("*", decimal(32, 4), decimal(16, 2)),
        ("*", decimal(38, 2), decimal(30, 2)),
        ("+", decimal(38, 2), decimal(38, 2)),
        ("-", decimal(38, 6), decimal(38, 6)),
    ],
)
def test_every_value_is_exact_or_fails(operator: str, left: SqlType, right: SqlType, digits: int) -> None:
    """With few digits, where nothing fails, and with all of them; NULL stays NULL."""
    rng, call = random.Random(digits), of(operator, left, right)
    assert admits_wide(call)
    a, b = drawn(rng, left, digits), drawn(rng, right, digits)
    made, failed = wide(call, pa.array(a, arrow_type(left)), pa.array(b, arrow_type(right)))
    assert made.type == arrow_type(call.type)
    fails = [False] * ROWS if failed is None else failed.tolist()
    for x, y, value, fail in zip(a, b, made.to_pylist(), fails, strict=True):
        if x is None or y is None:
            assert (value, fail) == (None, False)
            continue
        exact = OPERATORS[operator](x, y)
        fits = abs(exact.scaleb(call.type.scale, EXACT)) < 10**38
        assert (value, fail) == ((exact, False) if fits else (None, True))


def test_rounded_decimals_are_left_to_catalyst() -> None:
    """The scale gives way to whole digits."""
    assert not admits_wide(of("*", decimal(38, 10), decimal(38, 10)))
    assert not admits_wide(of("+", decimal(38, 10), decimal(38, 10)))


@pytest.mark.spark
def test_agree_with_catalyst_on_a_product_of_three(spark: Any) -> None:
    """The charge of TPC-H's Q1, over prices that fit and prices that do not."""
    money, one = decimal(15, 2), Literal("1", decimal(1, 0))
    price, discount, tax = (ColumnRef(n, money) for n in range(3))

    def result(operator: str, left: Any, right: Any) -> Call:
        return Call(operator, (left, right), decimals.result_type(operator, left.type, right.type))

    charge = result("*", result("*", price, result("-", one, discount)), result("+", one, tax))
    assert admits_expression(charge)
    schema = tuple(ColumnType(money, nullable) for nullable in (True, False, True))
    for seed in range(3):
        check(spark, MapFilterProject(schema, (charge,), (), (0, 3)), seed)
