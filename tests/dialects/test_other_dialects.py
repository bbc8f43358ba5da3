"""DuckDB's dialect gives DuckDB's answers. Of Snowflake, BigQuery and T-SQL no engine runs here: what is admitted is
planned, and all else is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from tests.dialects.comparison import assert_same_rows, session_of, spoken, typed
from tests.dialects.other_statements import (
    DUCKDB_ERRORS,
    DUCKDB_EXPRESSIONS,
    DUCKDB_QUERIES,
    DUCKDB_REFUSED,
    DUCKDB_REFUSED_QUERIES,
    OF_DIALECT,
    REFUSED_OF_ALL,
    REFUSED_OF_DIALECT,
    REFUSED_QUERIES_OF_DIALECT,
    STANDARDS,
)
from tests.dialects.statements import COLUMNS, TABLE, entries
from tests.dialects.test_postgres import CATALOGUE, TYPES
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.dialects.documented import DOCUMENTED
from tidemark_planner.dialects.foreign_text import DIALECTS, as_spark_text
from tidemark_planner.errors import Refusal
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.messages.planning import PlanQueryRequest, Refused

AT_ONCE = 20
"""Expressions of one query."""
DUCKDB_ADMITTED = [*(f"SELECT k, {each} AS x FROM t" for each in DUCKDB_EXPRESSIONS), *DUCKDB_QUERIES]
ADMITTED = [(dialect, sql) for dialect in DOCUMENTED for sql in [*STANDARDS, *entries(OF_DIALECT[dialect])]]
REFUSED = [
    *(("duckdb", *each.rsplit(": ", 1)) for each in entries(DUCKDB_REFUSED)),
    *((dialect, *each.rsplit(":", 1)) for dialect in DOCUMENTED for each in entries(REFUSED_OF_ALL)),
    *((dialect, *each.rsplit(":", 1)) for dialect in DOCUMENTED for each in entries(REFUSED_OF_DIALECT[dialect])),
]
REFUSED_QUERIES = [
    *(("duckdb", sql, why) for sql, why in DUCKDB_REFUSED_QUERIES.items()),
    *((dialect, sql, why) for dialect in DOCUMENTED for sql, why in REFUSED_QUERIES_OF_DIALECT[dialect].items()),
]


def spark_text(dialect: str, sql: str) -> str:
    return as_spark_text(sql, dialect, lambda parts, line, column: TYPES).text


@pytest.mark.parametrize(("dialect", "sql"), [*(("duckdb", sql) for sql in DUCKDB_ADMITTED), *ADMITTED])
def test_admitted_constructs_of_other_dialects_are_translated(dialect: str, sql: str) -> None:
    assert spark_text(dialect, sql)


@pytest.mark.parametrize(
    ("dialect", "sql", "text"),
    [
        ("duckdb", "SELECT i FROM t ORDER BY i DESC", "SELECT i FROM t ORDER BY i DESC"),
        ("duckdb", "SELECT i FROM t ORDER BY i", "SELECT i FROM t ORDER BY i NULLS LAST"),
        ("duckdb", "SELECT i // 2 AS x, i / 2 AS y FROM t", "SELECT i DIV 2 AS x, i / 2 AS y FROM t"),
        ("snowflake", "SELECT i FROM t ORDER BY i DESC", "SELECT i FROM t ORDER BY i DESC NULLS FIRST"),
        ("bigquery", "SELECT i / 2 AS x FROM t ORDER BY x", "SELECT i / 2 AS x FROM t ORDER BY x"),
        ("tsql", "SELECT TOP 2 x = i / 2 FROM t ORDER BY i", "SELECT i DIV 2 AS x FROM t ORDER BY i LIMIT 2"),
        ("tsql", "SELECT [a].[k] FROM t AS [a]", "SELECT `a`.`k` FROM t AS `a`"),
    ],
)
def test_quotients_and_the_place_of_null_are_the_dialects(dialect: str, sql: str, text: str) -> None:
    """Spark puts NULL first, and last with DESC."""
    assert spark_text(dialect, sql) == text


@pytest.mark.parametrize(("dialect", "expression", "why"), REFUSED)
def test_other_constructs_of_other_dialects_are_refused_by_name(dialect: str, expression: str, why: str) -> None:
    refuses(dialect, f"SELECT {expression} AS x FROM t", why)


@pytest.mark.parametrize(("dialect", "sql", "why"), REFUSED_QUERIES)
def test_queries_of_other_dialects_are_refused_by_name(dialect: str, sql: str, why: str) -> None:
    refuses(dialect, sql, why)


def refuses(dialect: str, sql: str, why: str) -> None:
    with pytest.raises(Refusal) as refused:
        spark_text(dialect, sql)
    (diagnostic,) = refused.value.diagnostics
    assert why.strip().lower() in diagnostic.message.lower()


@pytest.mark.broad
@pytest.mark.spark
def test_admitted_constructs_of_other_dialects_are_planned(catalyst: Catalyst) -> None:
    """The statements are of all dialects; the planner names them where it knows none of that name."""
    for dialect, sql in [*ADMITTED, *(("duckdb", sql) for sql in DUCKDB_QUERIES)]:
        planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", dialect))
        assert not isinstance(planned, Refused), f"{dialect}: {sql}\n{planned}"
    unknown = plan_query(catalyst, PlanQueryRequest("SELECT 1", CATALOGUE, "q/", "oracle"))
    assert isinstance(unknown, Refused)
    assert f"choose among spark, {', '.join(DIALECTS)}" in unknown.diagnostics[0].message


# --- against DuckDB itself ---


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    with duckdb.connect() as connection:
        connection.execute(TABLE.replace("double precision", "double"))
        yield connection


@pytest.fixture(scope="module")
def duckdb_session(spark: Any, engine: Any) -> Any:
    session = session_of(spark)
    rows = [[None if v is None else str(v) for v in row] for row in engine.execute("TABLE t").fetchall()]
    session.createDataFrame(typed(session, rows).collect(), columns()).createOrReplaceTempView("t")
    return session


def columns() -> str:
    return ", ".join(f"{name} {of}" for name, of in COLUMNS.items())


def compare(session: Any, engine: Any, sql: str) -> None:
    theirs = [tuple(map(spoken, row)) for row in engine.execute(sql).fetchall()]
    assert_same_rows(sql, theirs, session.sql(spark_text("duckdb", sql)).collect())


@pytest.mark.broad
@pytest.mark.spark
@pytest.mark.parametrize("first", range(0, len(DUCKDB_EXPRESSIONS), AT_ONCE))
def test_duckdb_gives_the_same_values(duckdb_session: Any, engine: Any, first: int) -> None:
    some = enumerate(DUCKDB_EXPRESSIONS[first : first + AT_ONCE])
    compare(duckdb_session, engine, f"SELECT k, {', '.join(f'{each} AS x{n}' for n, each in some)} FROM t")


@pytest.mark.broad
@pytest.mark.spark
@pytest.mark.parametrize("sql", DUCKDB_QUERIES)
def test_duckdb_gives_the_same_answer(duckdb_session: Any, engine: Any, sql: str) -> None:
    compare(duckdb_session, engine, sql)


@pytest.mark.broad
@pytest.mark.spark
@pytest.mark.parametrize("expression", entries(DUCKDB_ERRORS))
def test_statements_that_fail_in_duckdb_fail_here(duckdb_session: Any, engine: Any, expression: str) -> None:
    """Overflow and a bad cast: never a value."""
    sql = f"SELECT k, {expression} AS x FROM t"
    with pytest.raises(duckdb.Error):
        engine.execute(sql).fetchall()
    with pytest.raises(Exception, match=r"\[[A-Z_.]+\]"):
        duckdb_session.sql(spark_text("duckdb", sql)).collect()
