"""Expressions and literals as Spark SQL text."""

from __future__ import annotations

import pytest

from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.functions.registry import call
from tidemark_protocol.functions.sql_text import error_of, to_sql
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.types import BOOLEAN, DOUBLE, INT, STRING, SqlType


@pytest.mark.parametrize(
    ("value", "of", "text"),
    [
        ("5", "int", "5"),
        ("-5", "bigint", "-5L"),
        ("1", "tinyint", "1Y"),
        ("1.50", "decimal(3,2)", "1.50BD"),
        ("0.05", "decimal(2,2)", "0.05BD"),
        ("1.50", "decimal(12,2)", "CAST(1.50BD AS DECIMAL(12,2))"),
        ("1e+300", "double", "1e+300D"),
        ("NaN", "double", "CAST('NaN' AS DOUBLE)"),
        (None, "date", "CAST(NULL AS DATE)"),
        ("true", "boolean", "TRUE"),
        ("2020-01-31", "date", "DATE '2020-01-31'"),
        ("2020-01-31T23:59:59.000001", "timestamp", "TIMESTAMP_LTZ '2020-01-31 23:59:59.000001 UTC'"),
        ("00ff", "binary", "unhex('00FF')"),
        ("14", "interval year to month", "INTERVAL '1-2' YEAR TO MONTH"),
        ("-90061000001", "interval day to second", "INTERVAL '-1 01:01:01.000001' DAY TO SECOND"),
    ],
)
def test_a_literal_is_written_with_its_exact_type(value: str | None, of: str, text: str) -> None:
    """A literal is written in the form of its type, or under a cast."""
    assert to_sql(Literal(value, SqlType.parse(of))) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("it's", r"'it\'s'"),
        ("back\\slash", r"'back\\slash'"),
        ("\\'; DROP", r"'\\\'; DROP'"),
        ("two\nlines\0", r"'two\nlines\u0000'"),
        ("50%_", "'50%_'"),
        ("naïve 数", "'naïve 数'"),
    ],
)
def test_no_character_of_a_string_ends_its_literal(value: str, text: str) -> None:
    """Quotes, backslashes and control characters are escaped; nothing else is."""
    assert to_sql(Literal(value, STRING)) == text


def test_names_are_given_by_the_caller_and_everything_is_in_parentheses() -> None:
    """Precedence never matters."""
    a, b = ColumnRef(0, DOUBLE), ColumnRef(1, DOUBLE)
    difference = call("-", (a, call("-", (b, Literal("1.0", DOUBLE)), DOUBLE)), DOUBLE)
    both = call("and", tuple(call("<", (x, y), BOOLEAN) for x, y in ((a, b), (b, a), (a, a))), BOOLEAN)

    assert to_sql(difference, lambda i: f"`x {i}`") == "(`x 0` - (`x 1` - 1.0D))"
    assert to_sql(both) == "((c0 < c1) AND (c1 < c0) AND (c0 < c0))"
    assert to_sql(call("case", (both, a, b), DOUBLE)) == f"CASE WHEN {to_sql(both)} THEN c0 ELSE c1 END"


def test_a_function_off_the_allow_list_has_no_text() -> None:
    """A function that is not on the list has no text."""
    with pytest.raises(PlanNotAllowed, match="java_method"):
        to_sql(Call("java_method", (Literal("x", STRING),), STRING))


def test_an_error_names_its_expression_and_no_data() -> None:
    """An error value holds a code and a text of bounded length."""
    division = call("/", (ColumnRef(0, DOUBLE), ColumnRef(1, DOUBLE)), DOUBLE)
    long = call("cast", (call("concat", (ColumnRef(0, STRING), Literal("x" * 900, STRING)), STRING),), INT)

    assert (error_of(division).code, error_of(division).expression) == ("DIVIDE_BY_ZERO", "(c0 / c1)")
    assert len(error_of(long).expression) == 500
