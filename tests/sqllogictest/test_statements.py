"""Parsed statements, and literals without Spark."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.sqllogictest.dialects import NotTranslated, translator
from tests.sqllogictest.evaluate import literal_rows
from tests.sqllogictest.parse_statement import parse_statement
from tests.sqllogictest.statements import CreateTable, CreateView, Delete, Drop, Insert, NotOurs, Update
from tidemark_protocol.types import Column, SqlType


def columns(*types: str) -> tuple[Column, ...]:
    return tuple(Column(f"c{i}", SqlType.parse(t)) for i, t in enumerate(types))


def test_a_table_has_types_and_constraints() -> None:
    """The constraints are those of its columns, and its own."""
    made = parse_statement(
        "CREATE TABLE t(a INTEGER NOT NULL, b VARCHAR(30) DEFAULT 'x', d DECIMAL(5,2), UNIQUE (a, d))"
    )
    assert isinstance(made, CreateTable)
    assert [(c.name, str(c.type), c.nullable) for c in made.columns] == [
        ("a", "bigint", False),
        ("b", "string", True),
        ("d", "decimal(5,2)", True),
    ]
    assert (made.keys, made.defaults) == (((0, 2),), ((1, "'x'"),))


def test_changes_are_taken_apart() -> None:
    """Commas and words inside parentheses and strings are not the statement's."""
    assert parse_statement("INSERT INTO t(b, a) SELECT x, y FROM u") == Insert("t", ("b", "a"), "SELECT x, y FROM u")
    assert parse_statement("DELETE FROM t WHERE a IN (1, 2)") == Delete("t", "t", "a IN (1, 2)")
    assert parse_statement("UPDATE t SET a = f(b, 'where'), b = 2 WHERE c > 1") == Update(
        "t", "t", (("a", "f(b, 'where')"), ("b", "2")), "c > 1"
    )
    assert parse_statement("DROP VIEW IF EXISTS v, w") == Drop("VIEW", ("v", "w"), True)
    assert parse_statement("CREATE VIEW v(x) AS SELECT 1") == CreateView("v", ("x",), "SELECT 1")


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE t ADD b INT NOT NULL", "CREATE TRIGGER x", "INSERT INTO t VALUES (1) RETURNING a", ""]
)
def test_a_statement_without_meaning_is_unsupported(sql: str) -> None:
    """And not carried out by halves."""
    with pytest.raises(NotOurs):
        parse_statement(sql)


def test_literals_are_values_of_their_columns() -> None:
    """Spark is asked about whatever is no plain literal, or not one of its column's type."""
    taken = literal_rows(
        "VALUES (1, -2.5, 'a', NULL), (2, 1, 'b', 'c')", columns("int", "decimal(5,2)", "string", "string")
    )
    assert taken == [(1, Decimal("-2.50"), "a", None), (2, Decimal("1.00"), "b", "c")]
    for source in ("VALUES (1 + 1)", "VALUES ('1')", "VALUES (99999999999)", "VALUES (1, 2)", "SELECT 1"):
        assert literal_rows(source, columns("int")) is None


def test_other_engines_sql_becomes_sparks() -> None:
    """Types, casts, and a division of integers."""
    translate = translator("postgres")
    assert translate("SELECT 7 / 2, x::text FROM t", {}) == "SELECT 7 DIV 2, CAST(x AS STRING) FROM t"
    assert "STRING" in translate("CREATE TABLE t (a text)", {})
    with pytest.raises(NotTranslated):
        translate("SELECT FROM WHERE", {})
