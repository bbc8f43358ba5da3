"""Other engines' SQL as Spark's: the same meaning, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sqllogictest.dialect_statements import spoken
from tests.sqllogictest.dialects import NotTranslated, dialect_of, translator
from tests.sqllogictest.statements import CreateTable, Insert
from tidemark_protocol.types import Column, SqlType

TABLES = {"t": (Column("a", SqlType("int")), Column("b", SqlType("int")), Column("d", SqlType("double")))}


def translated(dialect: str, sql: str) -> str:
    return translator(dialect)(sql, TABLES)


@pytest.mark.parametrize(
    ("dialect", "sql", "spark"),
    [
        ("postgres", "SELECT a / 2, a / 2.0, d / b FROM t", "SELECT a DIV 2, a / 2.0, d / b FROM t"),
        ("postgres", "SELECT n / 2 FROM (SELECT count(*) AS n FROM t) q", "n DIV 2"),
        ("sqlite", "SELECT - a / 3 AS a FROM t", "-a DIV 3 AS a"),
        ("sqlite", "SELECT a / b, a % b FROM t", "SELECT a DIV NULLIF(b, 0), a % NULLIF(b, 0) FROM t"),
        ("duckdb", "SELECT a / 2, a // 2 FROM t", "SELECT a / 2, a DIV 2 FROM t"),
        ("sqlite", "SELECT a FROM t WHERE s LIKE 'x%'", "s ILIKE 'x%'"),
        ("sqlite", "SELECT max(a, b) FROM t", "CASE WHEN a IS NULL OR b IS NULL THEN NULL ELSE GREATEST(a, b) END"),
        ("sqlite", "SELECT CAST(a AS INTEGER) FROM t", "CAST(a AS BIGINT)"),
        ("postgres", "SELECT CAST(d AS INT) FROM t", "CAST(RINT(d) AS INT)"),
        ("postgres", "SELECT CAST(2.5 AS INT) FROM t", "CAST(ROUND(2.5) AS INT)"),
        ("postgres", "SELECT CAST(percent_rank() OVER (ORDER BY a) * 10 AS INT) FROM t", "CAST(RINT(PERCENT_RANK()"),
        ("postgres", "SELECT s !~~ 'x%' FROM t", "s NOT LIKE 'x%'"),
        ("postgres", "SELECT s !~~* 'x%' FROM t", "s NOT ILIKE 'x%'"),
        ("duckdb", "SELECT s NOT LIKE 'x%' FROM t", "s NOT LIKE 'x%'"),
        ("sqlite", "SELECT s NOT LIKE 'x%' FROM t", "s NOT ILIKE 'x%'"),
        ("duckdb", "SELECT nth_value(a, 2) OVER (ORDER BY b) FROM t", "NTH_VALUE(a, 2)"),
        ("duckdb", "SELECT {'x': a, 'y': 1} FROM t", "STRUCT(a AS x, 1 AS y)"),
        ("postgres", "SELECT extract(dow FROM x) FROM t", "(EXTRACT(DAYOFWEEK FROM x) - 1)"),
        ("postgres", "SELECT extract(year FROM x) / 2 FROM t", "EXTRACT(YEAR FROM x) / 2"),
        ("postgres", "SELECT log(d) FROM t", "LOG10(d)"),
        ("postgres", "SELECT i FROM generate_series(1, 3) AS g(i)", "(SELECT id AS i FROM RANGE(1, (3) + 1, 1)) AS g"),
        ("postgres", "SELECT a FROM t ORDER BY a", "ORDER BY a NULLS LAST"),
        ("sqlite", "SELECT a FROM t ORDER BY a", "ORDER BY a"),
    ],
)
def test_the_meaning_of_an_expression(dialect: str, sql: str, spark: str) -> None:
    """Where Spark's text of the same words means something else, other words are found."""
    assert spark in translated(dialect, sql)


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("postgres", "SELECT x / 2 FROM t"),
        ("duckdb", "SELECT strftime(d, '%a') FROM t"),
        ("postgres", "SELECT array_agg(a) FROM t"),
        ("postgres", "SELECT substr(s, a) FROM t"),
        ("sqlite", "SELECT s GLOB 'a*' FROM t"),
        ("postgres", "SELECT my_function(a) FROM t"),
        ("sqlite", "SELECT FROM WHERE"),
        ("duckdb", "SELECT t.a FROM t ASOF JOIN u ON t.a >= u.a"),
        ("duckdb", "SELECT sum(a) EXPORT_STATE FROM t"),
    ],
)
def test_an_unknown_expression_is_not_translated(dialect: str, sql: str) -> None:
    """Rather than be guessed at, and answered wrongly."""
    with pytest.raises(NotTranslated, match=dialect):
        translated(dialect, sql)


def test_a_setting_moves_null_in_orders_that_do_not_say_where_it_stands() -> None:
    """Orders that say where NULL is are left alone; so are those before the setting."""
    translate = translator("duckdb")
    sql = "SELECT a FROM t ORDER BY a, b NULLS LAST, d DESC"
    before = translate(sql, TABLES)
    translate.setting("SET default_null_order='nulls_first'")
    after = translate(sql, TABLES)

    assert before.endswith("ORDER BY a NULLS LAST, b NULLS LAST, d DESC")
    assert after.endswith("ORDER BY a, b NULLS LAST, d DESC NULLS FIRST")


def test_constraints_survive_translation() -> None:
    """Constraints that Spark has no words for are taken from the text itself; plain values are, too."""
    translate = translator("sqlite")
    made = spoken("CREATE TABLE u(a INTEGER, b INT, UNIQUE (a, b))", translate, TABLES)
    assert isinstance(made, CreateTable)
    assert (made.keys, {str(c.type) for c in made.columns}) == (((0, 1),), {"bigint"})
    insert = spoken("REPLACE INTO u VALUES (1, -2), (NULL, 3)", translate, TABLES)
    assert insert == Insert("u", (), "VALUES (1, -2), (NULL, 3)", "replace")


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("# name: test/sql/join/a.test\n# group: [join]\n\nstatement ok\nSELECT 1\n", "duckdb"),
        ("mode cockroach\n\nquery I\nSELECT 1\n----\n1\n", "postgres"),
        ("skipif mysql # not compatible\nquery I rowsort\nSELECT 1\n----\n1\n", "sqlite"),
        ("statement ok\nSELECT 1\n", "spark"),
    ],
)
def test_the_signs_of_a_file_tell_its_engine(tmp_path: Path, text: str, dialect: str) -> None:
    """Where the command does not."""
    path = tmp_path / "a.test"
    path.write_text(text)
    assert dialect_of(path) == dialect
