"""PostgreSQL's dialect: what is admitted gives PostgreSQL's answers, and what is refused is named with its position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.comparison import assert_same_rows, session_of, typed
from tests.dialects.postgres import Failed, Postgres, programs, running
from tests.dialects.statements import (
    COLUMNS,
    ERRORS,
    EXPRESSIONS,
    NO_OPERATOR,
    OF_POSTGRES,
    QUERIES,
    REFUSED,
    REFUSED_QUERIES,
    TABLE,
    entries,
)
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.dialects.foreign_text import as_spark_text
from tidemark_planner.errors import Refusal
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, PlanQueryRequest, Refused, Relation
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column, SqlType

TYPES = tuple(Column(name, SqlType.parse(of), name != "k") for name, of in COLUMNS.items())
SHARD = ShardMetadata(ShardId("t"), "shards/t", TYPES)
CATALOGUE = Catalogue((Relation("t", "t", GlobalId("t"), TYPES, SHARD, short=True),))
OWN = [*entries(EXPRESSIONS), *entries(OF_POSTGRES)]
ADMITTED = [*(f"SELECT k, {each} AS x FROM t" for each in OWN), *entries(QUERIES)]
SPOKEN_TYPES = {"int": "integer", "double": "double precision", "decimal": "numeric", "string": "text", "void": "text"}
FAILING = [f"SELECT k, {each} AS x FROM t" for each in entries(ERRORS)]


def spark_text(sql: str) -> str:
    return as_spark_text(sql, "postgres", lambda parts, line, column: TYPES).text


def refusal(sql: str) -> Refusal:
    with pytest.raises(Refusal) as refused:
        spark_text(sql)
    return refused.value


def test_a_function_is_refused_by_its_own_name() -> None:
    (diagnostic,) = refusal("SELECT generate_series(1, 3)").diagnostics
    assert diagnostic.message.startswith("GENERATE_SERIES of dialect postgres")


@pytest.mark.parametrize("sql", [*ADMITTED, *FAILING])
def test_admitted_constructs_are_translated(sql: str) -> None:
    """Each is compared with PostgreSQL by the slow tests below."""
    assert spark_text(sql)


@pytest.mark.parametrize(("sql", "text"), [
    ("SELECT Shop.t.i FROM shop.t ORDER BY shop.t.i", "SELECT t.i FROM shop.t ORDER BY t.i"),
    ("SELECT a.t.i FROM a.t JOIN a.u ON a.t.i = a.u.i", "SELECT t.i FROM a.t JOIN a.u ON t.i = u.i"),
    ("SELECT shop.t.i FROM shop.t WHERE EXISTS (SELECT 1 FROM other.t WHERE shop.t.i = 1)", None),
    ("SELECT shop.t.i FROM shop.t AS t", None),
    ("SELECT shop.t.i FROM shop.t, shop.u AS t", None),
    ("WITH t AS (SELECT 1 AS i) SELECT shop.t.i FROM shop.t, t", None),
    ("SELECT shop.t.i FROM t", None),
    ("SELECT other.t.i FROM shop.t", None),
])  # fmt: skip
def test_a_column_may_have_the_full_name_of_its_table(sql: str, text: str | None) -> None:
    """Where nothing else of the text has the table's name: else it stays as it is, which the analysis refuses."""
    found = spark_text(sql)
    if text is None:
        assert ".t.i" in found
    else:
        assert found.replace(" NULLS LAST", "") == text


@pytest.mark.parametrize(("expression", "why"), [each.rsplit(": ", 1) for each in entries(REFUSED)])
def test_ambiguous_constructs_are_refused_by_name(expression: str, why: str) -> None:
    (diagnostic,) = refusal(f"SELECT {expression} AS x FROM t").diagnostics

    assert why.lower() in diagnostic.message.lower()
    assert diagnostic.message.endswith("write the query in Spark's SQL")


@pytest.mark.parametrize(
    ("sql", "line", "column", "word"),
    [
        ("SELECT i,\n  my_function(j) FROM t", 2, 3, "my_function"),
        ("SELECT i FROM t\nWHERE (j =", 2, 10, "="),
        ("SELECT i,\n   m / 3 AS x FROM t", 2, 4, "m"),
        ("SELECT FROM WHERE", 1, 13, "WHERE"),
        ("SELECT i FROM t WHERE s ~ 'x'", 1, 23, "s"),
    ],
)
def test_positions_are_of_the_users_text(sql: str, line: int, column: int, word: str) -> None:
    (diagnostic,) = refusal(sql).diagnostics

    assert (diagnostic.line, diagnostic.column, diagnostic.word) == (line, column, word)


@pytest.mark.parametrize("expression", entries(NO_OPERATOR))
def test_what_only_spark_casts_is_refused_by_name(expression: str) -> None:
    (diagnostic,) = refusal(f"SELECT {expression} AS x FROM t").diagnostics
    assert " of " in diagnostic.message


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sql", "line", "column", "word"),
    [
        ("SELECT i::text,\n   nosuch FROM t", 2, 4, "nosuch"),
        ("SELECT k / 2 AS a, k / 3 AS b,\n  t.nosuch FROM t", 2, 3, "t.nosuch"),
        ("SELECT i / 2 AS x\nFROM nowhere", 2, 6, "nowhere"),
    ],
)
def test_positions_of_the_planners_refusals_are_of_the_users_text(
    catalyst: Catalyst, sql: str, line: int, column: int, word: str
) -> None:
    """Spark's text has other words before them."""
    refused = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", "postgres"))

    assert isinstance(refused, Refused)
    (diagnostic,) = refused.diagnostics
    assert (diagnostic.line, diagnostic.word.replace("`", "").rsplit(".")[-1]) == (line, word.rsplit(".")[-1])
    assert diagnostic.column in (column, column + word.find(".") + 1)


@pytest.mark.broad
@pytest.mark.spark
def test_constructs_that_only_types_tell_are_refused_or_planned(catalyst: Catalyst) -> None:
    """Everything that is admitted is planned; of queries that hide a type from the names, the types decide."""
    for sql in ADMITTED:
        planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", "postgres"))
        assert not isinstance(planned, Refused), f"{sql}\n{planned}"
    for sql, why in REFUSED_QUERIES.items():
        refused = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", "postgres"))
        assert isinstance(refused, Refused), sql
        assert why.lower() in refused.diagnostics[0].message.lower(), refused.diagnostics
    unknown = plan_query(catalyst, PlanQueryRequest("SELECT 1", CATALOGUE, "q/", "oracle"))
    assert isinstance(unknown, Refused)
    assert "choose among spark, postgres" in unknown.diagnostics[0].message


# --- against PostgreSQL itself ---


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if programs() is None:
        pytest.fail("PostgreSQL is not installed: make test-packages")
    with running() as server:
        server.rows(TABLE)
        yield server


@pytest.fixture(scope="module")
def session(spark: Any, postgres: Postgres) -> Any:
    session = session_of(spark)
    rows = [tuple("true" if v == "t" else "false" if v == "f" else v for v in row) for row in postgres.rows("TABLE t")]
    typed(session, rows).createOrReplaceTempView("t")
    return session


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("sql", ADMITTED)
def test_postgres_gives_the_same_answer(session: Any, postgres: Postgres, sql: str) -> None:
    assert_same_rows(sql, postgres.rows(sql), session.sql(spark_text(sql)).collect())


@pytest.mark.slow
@pytest.mark.spark
def test_values_have_the_types_of_postgres(session: Any, postgres: Postgres) -> None:
    """Such as the numeric of extract(), which drivers show as they show the column's type. Quotients of integers are
    wider here, and texts that have no type there are text."""
    found = dict[str, tuple[str, str]]()
    for expression in OWN:
        ((theirs,),) = postgres.rows(f"SELECT pg_typeof({expression}) FROM t LIMIT 1")
        of = session.sql(spark_text(f"SELECT {expression} AS x FROM t")).schema["x"].dataType
        ours = SPOKEN_TYPES.get(of.simpleString().partition("(")[0], of.simpleString())
        is_quotient = "/" in expression and (ours, theirs) == ("bigint", "integer")
        if ours != theirs and not is_quotient and theirs != "unknown":
            found[expression] = ours, str(theirs)
    assert found == {}


@pytest.mark.slow
@pytest.mark.parametrize("expression", entries(NO_OPERATOR))
def test_what_only_spark_casts_fails_in_postgres(postgres: Postgres, expression: str) -> None:
    with pytest.raises(Failed):
        postgres.rows(f"SELECT {expression} AS x FROM t")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("sql", FAILING)
def test_failures_of_postgres_fail_here(session: Any, postgres: Postgres, sql: str) -> None:
    """Overflow, division by zero, a bad cast: never a value."""
    with pytest.raises(Failed):
        postgres.rows(sql)
    with pytest.raises(Exception, match=r"\[[A-Z_.]+\]"):
        session.sql(spark_text(sql)).collect()
