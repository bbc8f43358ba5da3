"""Parameters become literals that no value can leave."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from http import HTTPStatus
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import DataError, Error, InterfaceError, ProgrammingError
from tidemark.literals import bind, literal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (5, "5"),
        (-5, "(-5)"),
        (2**31, "2147483648"),
        (-(2**31), "(-2147483648)"),
        (2**63 - 1, "9223372036854775807"),
        (HTTPStatus.OK, "200"),
        (np.int64(-5), "(-5)"),
        (-(2**63), "CAST('-9223372036854775808' AS BIGINT)"),
        (2**63, "9223372036854775808BD"),
        (0.1, "CAST('0.1' AS DOUBLE)"),
        (np.float64(-0.0), "CAST('-0.0' AS DOUBLE)"),
        (float("-inf"), "CAST('-Infinity' AS DOUBLE)"),
        (Decimal("-1E-7"), "(-0.0000001BD)"),
        (Decimal("-0"), "(-0BD)"),
        (Decimal("1E+5"), "100000BD"),
        (Decimal("12345678901234567890123456789012345678"), "12345678901234567890123456789012345678BD"),
        ("O'Hara \\ ?", "'O\\'Hara \\\\ ?'"),
        (b"\x00\xff", "X'00ff'"),
        (date(2026, 1, 31), "DATE'2026-01-31'"),
        (datetime(2026, 1, 31, 12), "TIMESTAMP_NTZ'2026-01-31 12:00:00'"),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "TIMESTAMP'2026-01-31 12:00:00Z'"),
        (datetime(2026, 1, 31, 1, tzinfo=timezone(timedelta(hours=2))), "TIMESTAMP'2026-01-30 23:00:00Z'"),
        (UUID(int=1), "'00000000-0000-0000-0000-000000000001'"),
    ],
    ids=str,
)
def test_each_kind_of_value_has_a_literal(value: object, text: str) -> None:
    assert literal(value) == text


OUT_OF_RANGE = [
    10**38,
    Decimal("NaN"),
    Decimal("1e-39"),
    Decimal("1E+999999"),
    Decimal("1234567890123456789012345678901234567.12"),
    "\ud800",
    datetime.min.replace(tzinfo=timezone(timedelta(hours=2))),
]


@pytest.mark.parametrize("value", OUT_OF_RANGE, ids=repr)
def test_a_value_that_no_type_holds_is_refused(value: object) -> None:
    with pytest.raises(DataError):
        literal(value)
    with pytest.raises(InterfaceError, match="type list has no literal"):
        literal([])


@pytest.mark.parametrize(
    ("sql", "bound"),
    [
        ("a = ? AND b = ?", "a = <1> AND b = <'x'>"),
        ("'?' = ? AND \"it's ?\" <> ?", "'?' = <1> AND \"it's ?\" <> <'x'>"),
        ("'\\'?' = ? -- ? '\n AND ?", "'\\'?' = <1> -- ? '\n AND <'x'>"),
        ("'it''s ?' = ? AND `?``?` = ?", "'it''s ?' = <1> AND `?``?` = <'x'>"),
        ("r'\\' = ? AND r = ?", "r'\\' = <1> AND r = <'x'>"),
        ("/* ? /* ' */ ? */ ? , -- \\\n ? '\n?", "/* ? /* ' */ ? */ <1> , -- \\\n ? '\n<'x'>"),
        ("colr'\\'?' = ? AND ?", "colr'\\'?' = <1> AND <'x'>"),
    ],
)
def test_a_mark_in_a_text_a_name_or_a_comment_is_none(sql: str, bound: str) -> None:
    """`<`, `>`: the blanks around a literal, which the cases have no others of."""
    assert bind(sql, [1, "x"]) == re.sub("<(1|'x')>", r" \1 ", bound)


@pytest.mark.parametrize(
    ("sql", "value", "bound"),
    [
        ("SELECT -?", Decimal("-0"), "SELECT - (-0BD) "),
        ("SELECT -?-1", -5, "SELECT - (-5) -1"),
        ("SELECT r?", "\\", "SELECT r '\\\\' "),
        ("SELECT a LIMIT?", 5, "SELECT a LIMIT 5 "),
        ("SELECT 1?", 5, "SELECT 1 5 "),
        ("SELECT ?e5", 5, "SELECT  5 e5"),
    ],
)
def test_a_literal_is_no_part_of_what_is_beside_it(sql: str, value: object, bound: str) -> None:
    """`--` would be a comment, r'\\' a raw text that goes on, LIMIT5 a name."""
    assert bind(sql, [value]) == bound


@pytest.mark.parametrize(
    "sql", ["SELECT ??", "SELECT ? ?", "'a'?, ?", "? /* c */ 'a', ?", "?, r'a' -- c\n ?", '?, ?"a"'], ids=repr
)
def test_texts_beside_each_other_are_refused(sql: str) -> None:
    """SQL would join them to one."""
    with pytest.raises(ProgrammingError, match="one text of both"):
        bind(sql, ["x", "y"])


@pytest.mark.parametrize("parameters", [{"a": 1}, "a", b"a", {1}], ids=repr)
def test_what_has_no_order_or_is_a_value_itself_is_no_list_of_parameters(parameters: Any) -> None:
    with pytest.raises(InterfaceError, match="a list or tuple"):
        bind("SELECT ?", parameters)


@pytest.mark.parametrize("sql", ["?", "?, ?, ?", "'?', ?", "?, ?, '", "?, ?, /* ", "?, '?'"])
def test_marks_and_parameters_must_agree(sql: str) -> None:
    with pytest.raises(ProgrammingError):
        bind(sql, [1, "x"])


@given(st.text(max_size=20))
def test_no_text_leaves_its_literal(value: str) -> None:
    """Read as Spark's lexer reads it, a text is one token, which is that text."""
    try:
        bound = bind("?, ?", [value, 1])
    except Error:
        assert any("\ud800" <= c <= "\udfff" for c in value)
        return
    (token,) = re.fullmatch(r" ('(?:[^'\\]|\\.)*') ,  1 ", bound, re.DOTALL).groups()  # type: ignore[union-attr]
    assert re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL) == value
