"""Comparisons with elements of arrays in PostgreSQL's dialect give its answers, or are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.array_statements import (
    ARRAY_COLUMNS,
    ARRAY_ERRORS,
    ARRAY_QUERIES,
    ARRAY_REFUSED,
    ARRAY_TABLE,
    ARRAYS,
)
from tests.dialects.comparison import assert_same_rows, session_of
from tests.dialects.postgres import Failed, Postgres, programs, running
from tests.dialects.statements import entries
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.dialects.foreign_text import as_spark_text
from tidemark_planner.dialects.postgres_arrays import MAX_ELEMENTS
from tidemark_planner.errors import Refusal
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, PlanQueryRequest, Refused, Relation
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column, SqlType

TYPES = tuple(Column(name, SqlType.parse(of), name != "k") for name, of in ARRAY_COLUMNS.items())
SHARD = ShardMetadata(ShardId("w"), "shards/w", TYPES)
CATALOGUE = Catalogue((Relation("w", "w", GlobalId("w"), TYPES, SHARD, short=True),))
ZONES = ("UTC", "America/New_York")
OF_TABLE = [f"SELECT k, {each} AS x FROM w" for each in entries(ARRAYS)]
STATEMENTS = [(zone, sql) for zone in ZONES for sql in [*OF_TABLE, *entries(ARRAY_QUERIES)]]
FAILING = [f"SELECT k, {each} AS x FROM w" for each in entries(ARRAY_ERRORS)]


def dialect_in(zone: str) -> str:
    return "postgres" if zone == "UTC" else f"postgres, time_zone={zone}"


def spark_text(sql: str, zone: str = "UTC") -> str:
    return as_spark_text(sql, dialect_in(zone), lambda parts, line, column: TYPES).text


@pytest.mark.parametrize(("zone", "sql"), STATEMENTS)
def test_arrays_become_lists(zone: str, sql: str) -> None:
    """Each is compared with PostgreSQL by the slow tests below."""
    assert " ANY " not in spark_text(sql, zone)


@pytest.mark.parametrize(("expression", "why"), [each.rsplit(": ", 1) for each in entries(ARRAY_REFUSED)])
def test_other_arrays_are_refused_by_name(expression: str, why: str) -> None:
    with pytest.raises(Refusal) as refused:
        spark_text(f"SELECT {expression} AS x FROM w")

    (diagnostic,) = refused.value.diagnostics
    assert why.lower() in diagnostic.message.lower()


def test_an_array_has_a_limited_length() -> None:
    elements = ",".join(map(str, range(MAX_ELEMENTS)))
    for array in ("'{%s}'::int[]", "ARRAY[%s]"):
        assert spark_text(f"SELECT k FROM w WHERE i = ANY ({array % elements})").count(",") == MAX_ELEMENTS - 1
        with pytest.raises(Refusal, match=f"{MAX_ELEMENTS} elements"):
            spark_text(f"SELECT k FROM w WHERE i = ANY ({array % (elements + ',1')})")


@pytest.mark.broad
@pytest.mark.spark
def test_lists_are_planned(catalyst: Catalyst) -> None:
    for zone, sql in STATEMENTS:
        planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", dialect_in(zone)))
        assert not isinstance(planned, Refused), f"{sql}\n{planned}"


# --- against PostgreSQL itself ---


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if programs() is None:
        pytest.fail("PostgreSQL is not installed: make test-packages")
    with running() as server:
        server.rows(ARRAY_TABLE)
        yield server


@pytest.fixture(scope="module")
def session(spark: Any, postgres: Postgres) -> Any:
    session = session_of(spark)
    casts = ", ".join(f"CAST(_{n} AS {of}) AS {name}" for n, (name, of) in enumerate(ARRAY_COLUMNS.items()))
    rows = [tuple({"t": "true", "f": "false"}.get(v or "", v) for v in row) for row in postgres.rows("TABLE w")]
    texts = session.createDataFrame(rows, ", ".join(f"_{n} string" for n in range(len(ARRAY_COLUMNS))))
    texts.createOrReplaceTempView("texts_of_w")
    session.sql(f"SELECT {casts} FROM texts_of_w").cache().createOrReplaceTempView("w")
    return session


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("zone", "sql"), STATEMENTS)
def test_postgres_gives_the_same_rows(session: Any, postgres: Postgres, zone: str, sql: str) -> None:
    theirs = postgres.rows(f"SET TimeZone = '{zone}'; {sql}")
    assert_same_rows(sql, theirs, session.sql(spark_text(sql, zone)).collect())


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("sql", FAILING)
def test_failures_of_postgres_are_no_rows_here(session: Any, postgres: Postgres, sql: str) -> None:
    with pytest.raises(Failed):
        postgres.rows(sql)
    with pytest.raises(Exception, match=r"\[[A-Z_.]+\]|is not known to mean|written as|not have|Missing|Spark's SQL"):
        session.sql(spark_text(sql)).collect()
