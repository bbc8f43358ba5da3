"""Dates and times of PostgreSQL's dialect give its answers, in the time zone of the session, or are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.dialects.comparison import assert_same_rows, session_of
from tests.dialects.postgres import Failed, Postgres, programs, running
from tests.dialects.statements import entries
from tests.dialects.time_statements import (
    CHARTS,
    CHOSEN_REALS,
    LITERALS,
    OF_UTC,
    REFUSED_IN_ZONE,
    TIME_COLUMNS,
    TIME_ERRORS,
    TIME_QUERIES,
    TIME_REFUSED,
    TIME_TABLE,
    WITHOUT_ZONE,
)
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.dialects.foreign_text import as_spark_text
from tidemark_planner.errors import Refusal
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, PlanQueryRequest, Refused, Relation
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column, SqlType

TYPES = tuple(Column(name, SqlType.parse(of), name != "k") for name, of in TIME_COLUMNS.items())
CATALOGUE = Catalogue(
    (Relation("u", "u", GlobalId("u"), TYPES, ShardMetadata(ShardId("u"), "shards/u", TYPES), short=True),)
)
ZONES = ("America/New_York", "Europe/Berlin", "Asia/Kolkata")
CHART_QUERIES = [" ".join(each.split()) for each in CHARTS.strip().split("\n\n")]


def of_table(expressions: Sequence[str]) -> list[str]:
    return [f"SELECT k, {each} AS x FROM u" for each in expressions]


EVERYWHERE = of_table([*entries(LITERALS), *entries(WITHOUT_ZONE)])
IN_UTC = [*of_table(entries(OF_UTC)), *entries(TIME_QUERIES), *CHART_QUERIES]
STATEMENTS = [
    *(("UTC", sql) for sql in [*EVERYWHERE, *IN_UTC]),
    *((zone, sql) for zone in ZONES for sql in EVERYWHERE),
]


def spark_text(sql: str, zone: str = "UTC") -> str:
    return as_spark_text(sql, dialect_in(zone), lambda parts, line, column: TYPES).text


def dialect_in(zone: str) -> str:
    return "postgres" if zone == "UTC" else f"postgres, time_zone={zone}"


@pytest.mark.parametrize(("zone", "sql"), STATEMENTS)
def test_times_are_translated(zone: str, sql: str) -> None:
    """Each is compared with PostgreSQL by the slow tests below."""
    assert spark_text(sql, zone)


@pytest.mark.parametrize(("expression", "why"), [each.rsplit(": ", 1) for each in entries(TIME_REFUSED)])
def test_times_that_differ_are_refused_by_name(expression: str, why: str) -> None:
    with pytest.raises(Refusal) as refused:
        spark_text(f"SELECT {expression} AS x FROM u")

    (diagnostic,) = refused.value.diagnostics
    assert why.lower() in diagnostic.message.lower()


@pytest.mark.parametrize("dialect", ["postgres, time_zone=Nowhere/Berlin", "postgres, time_zone=", "duckdb, a=b"])
def test_a_zone_or_setting_that_is_not_known_is_refused(dialect: str) -> None:
    with pytest.raises(Refusal):
        as_spark_text("SELECT 1 AS x", dialect, lambda parts, line, column: TYPES)


@pytest.mark.broad
@pytest.mark.spark
def test_times_are_planned_in_their_zones(catalyst: Catalyst) -> None:
    """Types that Spark finds decide again: what is admitted is planned, and what depends on the zone's days is not."""
    refused = list[str]()
    for zone, sql in STATEMENTS:
        planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", dialect_in(zone)))
        if isinstance(planned, Refused):
            refused.append(f"{zone}: {sql}\n{planned.diagnostics[0].message}")
    assert refused == []
    for sql in of_table(entries(CHOSEN_REALS)):
        planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", "postgres"))
        assert isinstance(planned, Refused), sql
    hidden = [
        sql.replace(" FROM u", " FROM (SELECT * FROM u) AS u(k, ts, tz, d, s, v)") for sql in of_table(entries(OF_UTC))
    ]
    for sql in [*of_table([*entries(OF_UTC), *entries(REFUSED_IN_ZONE)]), *hidden]:
        planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", dialect_in("Europe/Berlin")))
        assert isinstance(planned, Refused), sql


# --- against PostgreSQL itself ---


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if programs() is None:
        pytest.fail("PostgreSQL is not installed: make test-packages")
    with running() as server:
        server.rows(TIME_TABLE)
        yield server


@pytest.fixture(scope="module")
def session(spark: Any, postgres: Postgres) -> Any:
    session = session_of(spark)
    casts = ", ".join(f"CAST(_{n} AS {of}) AS {name}" for n, (name, of) in enumerate(TIME_COLUMNS.items()))
    texts = session.createDataFrame(
        postgres.rows("TABLE u"), ", ".join(f"_{n} string" for n in range(len(TIME_COLUMNS)))
    )
    texts.createOrReplaceTempView("texts_of_u")
    session.sql(f"SELECT {casts} FROM texts_of_u").createOrReplaceTempView("u")
    return session


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("zone", "sql"), STATEMENTS)
def test_postgres_gives_the_same_times(session: Any, postgres: Postgres, zone: str, sql: str) -> None:
    """A timestamptz is compared as the moment, and a timestamp as what it says."""
    theirs = [tuple(map(moment, row)) for row in postgres.rows(f"SET TimeZone = '{zone}'; {sql}")]
    assert_same_rows(sql, theirs, spoken_rows(session.sql(spark_text(sql, zone))))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("sql", of_table(entries(TIME_ERRORS)))
def test_failures_of_postgres_are_no_times_here(catalyst: Catalyst, postgres: Postgres, sql: str) -> None:
    with pytest.raises(Failed):
        postgres.rows(sql)
    assert isinstance(plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", "postgres")), Refused)


def spoken_rows(found: Any) -> list[tuple[Any, ...]]:
    """The rows, with times as texts: those of TIMESTAMP end with Z."""
    texts = []
    for column in found.schema:
        zone = {"timestamp": " || 'Z'", "timestamp_ntz": ""}.get(column.dataType.simpleString().lower())
        name = f"`{column.name}`"
        if zone is not None:
            name = f"date_format({name}, 'yyyy-MM-dd HH:mm:ss.SSSSSS'){zone} AS {name}"
        texts.append(name)
    return [
        tuple(row)
        for row in found.toDF(*(f"c{n}" for n in range(len(found.columns))))
        .selectExpr(
            *(
                text.replace(f"`{column}`", f"c{n}")
                for n, (column, text) in enumerate(zip(found.columns, texts, strict=True))
            )
        )
        .collect()
    ]


def moment(text: str | None) -> str | None:
    """A time of PostgreSQL as spoken_rows has it; any other text as it is."""
    if text is None or re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text) is None:
        return text
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        return at.isoformat(" ", "microseconds")
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds") + "Z"
