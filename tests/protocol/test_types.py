"""Types as text and back, and texts that are not a type."""

from __future__ import annotations

import pytest

from tidemark_protocol.casts import cast_errors
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.literals import is_valid, parts_of
from tidemark_protocol.types import SqlType, TypeNotSupported


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Decimal(15, 2)", "decimal(15,2)"),
        ("ARRAY<Int>", "array<int>"),
        ("struct<A: INT, `b c`:array<decimal(3,2)>>", "struct<A:int,`b c`:array<decimal(3,2)>>"),
        ("struct<`x``y`:string>", "struct<`x``y`:string>"),
        (" interval year to month ", "interval year to month"),
    ],
)
def test_a_type_prints_as_ddl_that_reads_back(text: str, printed: str) -> None:
    """Keywords may be in any case; field names keep theirs."""
    parsed = SqlType.parse(text)

    assert str(parsed) == printed
    assert SqlType.parse(printed) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "map<int,int>",
        "array<int",
        "array<>",
        "int>",
        "struct<>",
        "struct<a:int,A:int>",
        "decimal(39,0)",
        "array<interval year to month>",
        "array<" * 21 + "int" + ">" * 21,
        "array<" * 100_000,
        "",
        "int int",
    ],
)
def test_a_malformed_type_is_refused(text: str) -> None:
    """Texts that are not a type are refused, whatever they hold."""
    with pytest.raises(TypeNotSupported):
        SqlType.parse(text)


@pytest.mark.parametrize(
    ("value", "of", "valid"),
    [
        ('["1",null,"-3"]', "array<int>", True),
        ("[]", "array<int>", True),
        ("[[],null]", "array<array<int>>", True),
        ('["1",["x",null]]', "struct<a:int,b:array<string>>", True),
        ('["1"]', "struct<a:int,b:array<string>>", False),
        ('[ "1"]', "array<int>", False),
        ("[1]", "array<int>", False),
        ('["x"]', "array<int>", False),
        ('["1"', "array<int>", False),
        ("[" * 100_000, "array<int>", False),
        ('{"a":"1"}', "struct<a:int>", False),
    ],
)
def test_a_nested_literal_is_json_of_canonical_texts(value: str, of: str, valid: bool) -> None:
    """One text per value, so that plans of equal literals are equal."""
    assert is_valid(Literal(value, SqlType.parse(of))) is valid


def test_a_nested_literal_is_written_by_its_parts() -> None:
    """Nested literals are written as the functions that build them; an empty array keeps its type."""
    pair = Literal('["1",["x",null]]', SqlType.parse("struct<a:int,`b'c`:array<string>>"))

    assert [p.value for p in parts_of(pair)] == ["1", '["x",null]']
    assert to_sql(pair) == ("named_struct('a', 1, 'b\\'c', CAST(array('x', CAST(NULL AS STRING)) AS ARRAY<STRING>))")
    assert to_sql(Literal("[]", SqlType.parse("array<int>"))) == "CAST(array() AS ARRAY<INT>)"


@pytest.mark.parametrize(
    ("source", "target", "errors"),
    [
        ("array<int>", "array<bigint>", set()),
        ("array<string>", "array<int>", {"CAST_INVALID_INPUT"}),
        ("struct<a:bigint,b:int>", "struct<x:int,y:string>", {"CAST_OVERFLOW"}),
        ("struct<a:int>", "struct<a:int,b:int>", None),
        ("array<binary>", "string", None),
        ("array<array<double>>", "string", set()),
        ("int", "array<int>", None),
        ("array<int>", "struct<a:int>", None),
    ],
)
def test_nested_values_are_cast_part_by_part(source: str, target: str, errors: set[str] | None) -> None:
    """A nested cast raises the errors of its parts."""
    assert cast_errors(SqlType.parse(source), SqlType.parse(target)) == errors
