"""The allow-list: types, functions that can fail, and their codes."""

from __future__ import annotations

import pytest

from tidemark_protocol.casts import cast_errors
from tidemark_protocol.functions.registry import FUNCTIONS, call, error_code, errors_of, is_fallible
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, SqlType

MONEY = SqlType("decimal", 15, 2)
WIDE = SqlType("decimal", 38, 2)


def column(of: SqlType, nullable: bool = True) -> ColumnRef:
    return ColumnRef(0, of, nullable)


@pytest.mark.parametrize(
    ("made", "codes"),
    [
        (call("+", (column(BIGINT), column(BIGINT)), BIGINT), {"ARITHMETIC_OVERFLOW"}),
        (call("+", (column(DOUBLE), column(DOUBLE)), DOUBLE), set()),
        (call("*", (column(MONEY), column(MONEY)), SqlType("decimal", 31, 4)), set()),
        (call("*", (column(WIDE), column(MONEY)), SqlType("decimal", 38, 4)), {"NUMERIC_VALUE_OUT_OF_RANGE"}),
        (call("/", (column(DOUBLE), column(DOUBLE)), DOUBLE), {"DIVIDE_BY_ZERO"}),
        (call("/", (column(DOUBLE), Literal("3.0", DOUBLE)), DOUBLE), set()),
        (call("/", (column(DOUBLE), Literal("-0.0", DOUBLE)), DOUBLE), {"DIVIDE_BY_ZERO"}),
        (call("div", (column(BIGINT), column(BIGINT)), BIGINT), {"DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW"}),
        (call("div", (column(BIGINT), Literal("7", BIGINT)), BIGINT), set()),
        (call("div", (column(BIGINT), Literal("-1", BIGINT)), BIGINT), {"ARITHMETIC_OVERFLOW"}),
        (call("%", (column(INT), column(INT)), INT), {"REMAINDER_BY_ZERO"}),
        (call("negate", (column(MONEY),), MONEY), set()),
        (call("negate", (column(WIDE),), WIDE), {"NUMERIC_VALUE_OUT_OF_RANGE"}),
        (call("floor", (column(DOUBLE),), BIGINT), {"ARITHMETIC_OVERFLOW"}),
        (call("abs", (column(INT),), INT), {"ARITHMETIC_OVERFLOW"}),
        (call("cast", (column(STRING),), INT), {"CAST_INVALID_INPUT"}),
        (call("cast", (column(INT),), BIGINT), set()),
        (call("cast", (column(BIGINT),), INT), {"CAST_OVERFLOW"}),
        (call("like", (column(STRING), Literal("a\\_b%", STRING)), BOOLEAN), set()),
        (call("like", (column(STRING), Literal("a\\", STRING)), BOOLEAN), {"INVALID_FORMAT"}),
        (call("like", (column(STRING), column(STRING)), BOOLEAN), {"INVALID_FORMAT"}),
        (call("round", (column(WIDE), Literal("2", INT)), WIDE), {"NUMERIC_VALUE_OUT_OF_RANGE"}),
    ],
)
def test_a_call_raises_exactly_the_codes_its_types_allow(made: Call, codes: set[str]) -> None:
    """A call's errors follow from its types and literals alone."""
    assert FUNCTIONS[made.function].accepts(made)
    assert errors_of(made) == codes


def test_the_code_of_an_error_is_narrow_only_where_one_is_possible() -> None:
    """An expression with several possible errors has the general code, since evaluators may meet them in any order."""
    division = call("/", (column(DOUBLE), column(DOUBLE)), DOUBLE)
    with_cast = call("/", (column(DOUBLE), call("cast", (column(STRING),), DOUBLE)), DOUBLE)

    assert error_code(division) == "DIVIDE_BY_ZERO"
    assert error_code(with_cast) == "EXPRESSION_FAILED"


def test_an_expression_fails_where_anything_below_it_does() -> None:
    """Fallibility is inherited upwards, also through functions that never fail themselves."""
    inner = call("cast", (column(STRING),), INT)

    assert is_fallible(call("is_null", (inner,), BOOLEAN))
    assert not is_fallible(call("is_null", (column(INT),), BOOLEAN))


@pytest.mark.parametrize(
    ("source", "target", "errors"),
    [
        ("decimal(15,2)", "decimal(16,3)", set()),
        ("decimal(15,2)", "decimal(15,1)", set()),
        ("decimal(15,2)", "decimal(14,1)", {"NUMERIC_VALUE_OUT_OF_RANGE"}),
        ("decimal(15,2)", "decimal(14,2)", {"NUMERIC_VALUE_OUT_OF_RANGE"}),
        ("int", "decimal(10,0)", set()),
        ("bigint", "decimal(18,0)", {"NUMERIC_VALUE_OUT_OF_RANGE"}),
        ("decimal(9,0)", "int", set()),
        ("decimal(10,0)", "int", {"CAST_OVERFLOW"}),
        ("double", "decimal(38,10)", {"NUMERIC_VALUE_OUT_OF_RANGE"}),
        ("boolean", "decimal(2,2)", {"NUMERIC_VALUE_OUT_OF_RANGE"}),
        ("timestamp", "date", set()),
        ("date", "int", None),
        ("int", "date", None),
    ],
)
def test_a_cast_fails_only_where_some_value_does_not_fit(source: str, target: str, errors: set[str] | None) -> None:
    """The cast matrix, at its edges."""
    assert cast_errors(SqlType.parse(source), SqlType.parse(target)) == errors


@pytest.mark.parametrize(
    ("function", "arguments", "nullable"),
    [
        ("coalesce", (column(INT), Literal("1", INT)), False),
        ("coalesce", (column(INT), column(INT)), True),
        ("is_null", (column(INT),), False),
        ("<=>", (column(INT), column(INT)), False),
        ("=", (column(INT, False), column(INT, False)), False),
        ("=", (column(INT, False), column(INT)), True),
    ],
)
def test_a_call_is_nullable_only_where_null_can_come_out(
    function: str, arguments: tuple[ScalarExpr, ...], nullable: bool
) -> None:
    """A call is nullable if an argument is, except for functions that replace NULL."""
    result = INT if function == "coalesce" else BOOLEAN

    assert call(function, arguments, result).nullable is nullable


def test_case_without_else_is_nullable_though_its_values_are_not() -> None:
    """A CASE that falls through is NULL."""
    condition, value = column(BOOLEAN, False), Literal("2020-01-01", DATE)

    assert call("case", (condition, value), DATE).nullable
    assert not call("case", (condition, value, value), DATE).nullable
