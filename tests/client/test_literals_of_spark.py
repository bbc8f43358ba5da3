"""Spark, as the planner has it, reads each literal as the value that was bound."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tidemark.literals import bind
from tidemark_planner.catalyst.analyser import Catalyst

pytestmark = [pytest.mark.spark, pytest.mark.broad]
SMALL, LARGE = Decimal("-1E-38"), Decimal("12345678901234567890123456789012345678")
NOON = datetime(2026, 1, 31, 12, 0, 0, 123456)


@pytest.fixture(scope="module")
def catalyst(spark: Any) -> Catalyst:
    return Catalyst.start()


def read(catalyst: Catalyst, sql: str, *values: object) -> Any:
    """The first row. Times with a time zone come without it: in UTC."""
    return catalyst._spark.sql(bind(sql, values)).first()


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (None, "void"),
        (True, "boolean"),
        (0, "int"),
        (2**31 - 1, "int"),
        (-(2**31), "int"),
        (2**31, "bigint"),
        (-(2**31) - 1, "bigint"),
        (2**63 - 1, "bigint"),
        (-(2**63) + 1, "bigint"),
        (-(2**63), "bigint"),
        (2**63, "decimal(19,0)"),
        (0.1, "double"),
        (5e-324, "double"),
        (-math.inf, "double"),
        (Decimal("-0"), "decimal(1,0)"),
        (Decimal("1.50"), "decimal(3,2)"),
        (SMALL, "decimal(38,38)"),
        (LARGE, "decimal(38,0)"),
        ("", "string"),
        ("O'Hara \\ \\' \\n \n -- ? ${env:HOME} % \U0001f600 \\u0041 \\101", "string"),
        (b"\x00\xff'", "binary"),
        (date(1, 1, 1), "date"),
        (NOON, "timestamp_ntz"),
        (datetime.max, "timestamp_ntz"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("sql", ["SELECT ? AS v, typeof(?)", "SELECT(?)v,typeof(?)"])
def test_spark_reads_the_value_that_was_bound(catalyst: Catalyst, sql: str, value: object, type: str) -> None:
    got, typed = read(catalyst, sql, value, value)
    assert (bytes(got) if isinstance(got, bytearray) else got, typed) == (value, type)


def test_values_that_python_has_otherwise(catalyst: Catalyst) -> None:
    """NaN equals nothing, -0.0 equals 0.0, a UUID is a text, and Spark prints times in UTC."""
    got = read(catalyst, "SELECT ?, CAST(? AS STRING), ?", math.nan, -0.0, UUID(int=1))
    assert (math.isnan(got[0]), *got[1:]) == (True, "-0.0", str(UUID(int=1)))
    zoned = NOON.replace(tzinfo=timezone(timedelta(hours=2)))
    (text, typed) = read(catalyst, "SELECT CAST(? AS STRING), typeof(?)", zoned, zoned)
    assert (datetime.fromisoformat(text).replace(tzinfo=UTC), typed) == (zoned, "timestamp")


@pytest.mark.parametrize(
    ("sql", "values", "row"),
    [
        ("SELECT -?, 2", (Decimal("-0"),), (Decimal(0), 2)),
        ("SELECT -?, 2", (-5,), (5, 2)),
        ("SELECT 1-?, 2", (-5,), (6, 2)),
        ("SELECT x FROM VALUES (1), (2), (3) AS t(x) ORDER BY x DESC LIMIT?", (1,), (3,)),
        ("SELECT X?, 2", ("41",), (bytearray(b"A"), 2)),
    ],
)
def test_a_literal_is_a_token_of_its_own(catalyst: Catalyst, sql: str, values: Any, row: Any) -> None:
    assert tuple(read(catalyst, sql, *values)) == row
