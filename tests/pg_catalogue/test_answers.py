"""The statements that are the catalogue's, its answers about the session and its relations, and its refusals."""

from __future__ import annotations

import asyncio

import pytest

from tests.pg_catalogue.samples import RELATIONS, ask, column, rows, session
from tidemark_pgwire.catalogue.facts import CatalogueError, CatalogueRelation
from tidemark_pgwire.catalogue.oids import FIRST_OF_USERS
from tidemark_pgwire.catalogue.session_catalogue import Catalogue
from tidemark_pgwire.catalogue.system_relations import system_relations
from tidemark_pgwire.statements.lexer import POSTGRES, SPARK
from tidemark_pgwire.statements.subjects import StatementSubject, subject_of
from tidemark_pgwire.values.system_types import system_types

OURS = (
    "SELECT version()",
    "select 1",
    "SELECT 'x'::text AS y;",
    "SELECT current_schema(), current_user, session_user, user",
    "SHOW transaction_isolation",
    "show TimeZone;",
    "SHOW TRANSACTION ISOLATION LEVEL",
    "SELECT * FROM pg_class",
    "SELECT * FROM pg_catalog.pg_not_there",
    "select count(*) from INFORMATION_SCHEMA.Tables",
    "WITH x AS (SELECT oid FROM pg_type) SELECT * FROM x",
    "SELECT pg_is_in_recovery()",
    "SELECT set_config('search_path', $1, false)",
    "SELECT format_type(23, null)",
    "SELECT relname FROM pg_class JOIN orders ON true",
    "SELECT * FROM orders, pg_class",
    'SELECT * FROM "pg_catalog"."pg_class"',
    "SELECT * FROM (pg_class c JOIN pg_type t ON true)",
    "SELECT 'orders'::regclass",
)
SPARKS = ("SELECT 'a\\nb'", "SELECT array_position(array(1), 1)", "SELECT 'a'", "SELECT now()", "SELECT '1'::int")
OTHERS = (
    "SELECT * FROM orders",
    "SELECT 7 / 2",
    "SELECT 1 + 1",
    "SELECT 1.5",
    "SELECT $1",
    "SELECT lower('A')",
    "SELECT DATE '2020-01-01'",
    "SELECT current_user FROM orders",
    "SELECT * FROM pg_orders",
    "WITH pg_class AS (SELECT 1) SELECT * FROM orders",
    "SELECT 'pg_class' FROM orders",
    "INSERT INTO pg_class VALUES (1)",
    "SELECT age(timestamp '2020-01-01')",
    "SELECT pg_typeof(1)",
    "SELECT array_position(array[1], 1)",
    "SELECT octet_length('a')",
    "SELECT cardinality(array[1])",
    "SELECT E'a\\nb'",
    "SELECT a IS DISTINCT FROM pg_class FROM orders",
    "SELECT extract(day FROM pg_class) FROM orders",
    "SELECT 'moved from pg_class' FROM orders -- from pg_class",
    "WITH pg_class AS (SELECT 1) SELECT * FROM pg_class",
    "SELECT * FROM s.pg_class",
    "SET search_path = a",
    "BEGIN",
    "not sql",
    "",
)


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue(session())


@pytest.mark.parametrize("sql", OURS)
def test_catalogue_answers(sql: str) -> None:
    assert subject_of(sql, POSTGRES) is not StatementSubject.ROWS


@pytest.mark.parametrize("sql", SPARKS)
def test_gateway_answers_in_sparks_dialect(sql: str) -> None:
    assert subject_of(sql, SPARK) is StatementSubject.ROWS


@pytest.mark.parametrize("sql", ["SELECT 1", "SHOW search_path", "SELECT version() AS v, current_user"])
def test_statements_about_the_session_need_no_relations(sql: str) -> None:
    assert subject_of(sql, POSTGRES) is subject_of(sql, SPARK) is StatementSubject.SESSION


def test_values_are_not_rounded_to_integers(catalogue: Catalogue) -> None:
    for sql in ("SELECT oid, '2.5'::int FROM pg_class", "SELECT oid, '1e2'::int4 FROM pg_class"):
        assert refusal(catalogue, sql) == "22P02"
    assert refusal(catalogue, "SELECT 1 FROM pg_class WHERE oid = $1", "2.5") == "22P02"
    assert refusal(catalogue, "SELECT age(timestamp '2020-01-01') FROM pg_class") == "42883"
    assert rows(catalogue, "SELECT pg_typeof(relname) FROM pg_class LIMIT 1") == ["name"]


@pytest.mark.parametrize("sql", OTHERS)
def test_gateway_answers(sql: str) -> None:
    assert subject_of(sql, POSTGRES) is StatementSubject.ROWS


def refusal(catalogue: Catalogue, sql: str, *values: str | None) -> str:
    with pytest.raises(CatalogueError) as refused:
        ask(catalogue, sql, *values)
    return refused.value.sqlstate


def test_session_values(catalogue: Catalogue) -> None:
    answer = ask(
        catalogue,
        "SELECT current_database(), current_user, pg_backend_pid(), current_schemas(true), inet_client_port(),"
        " version()",
    )
    assert answer.rows.to_pylist() == [
        {
            "current_database": "shop",
            "current_user": "reader",
            "pg_backend_pid": 77,
            "current_schemas": ["pg_catalog", "public"],
            "inet_client_port": 40000,
            "version": "PostgreSQL 15.0 (Tidemark)",
        }
    ]
    assert list(answer.oids) == [19, 19, 23, 1003, 23, 25]


def test_settings_are_shown_as_they_are_now(catalogue: Catalogue) -> None:
    assert rows(catalogue, "SHOW search_path") == ['"$user", public']
    assert rows(catalogue, "SELECT set_config('search_path', $1, false)", "shop") == ["shop"]
    assert rows(catalogue, "SHOW Search_Path") == ["shop"]
    assert rows(catalogue, "SELECT current_setting('search_path')") == ["shop"]
    assert rows(catalogue, "SELECT setting FROM pg_settings WHERE name = 'search_path'") == ["shop"]
    assert rows(catalogue, "SELECT current_setting('nothing', true)") == [None]
    assert refusal(catalogue, "SELECT current_setting('nothing')") == "42704"
    assert refusal(catalogue, "SHOW nothing") == "42704"


@pytest.mark.parametrize("name", [
    "server_version",
    "client_encoding",
    "timezone",
    "transaction_read_only",
    "idle_in_transaction_session_timeout",
])  # fmt: skip
def test_settings_that_mean_something_are_not_changed_by_a_query(catalogue: Catalogue, name: str) -> None:
    assert refusal(catalogue, f"SELECT set_config('{name}', 'other', false)") == "0A000"


def test_oids_last_as_long_as_the_session_and_are_not_shared() -> None:
    many = tuple(
        CatalogueRelation(f"flow{n % 50}", f"view{n}", "materialized view", (column("k", "int"),), keys=(("k",),))
        for n in range(1_000)
    )
    catalogue = Catalogue(session())
    sql = "SELECT relname, oid, reltype FROM pg_class WHERE oid >= 16384"
    before = {name: oids for name, *oids in rows(catalogue, sql, relations=many)}
    taken = [oid for oids in before.values() for oid in oids if oid]
    assert len(taken) == len(set(taken)) == 3_000
    assert min(taken) >= FIRST_OF_USERS
    fewer = (*many[:10], CatalogueRelation("flow0", "another", "table", (column("k", "int"),)))
    after = {name: oids for name, *oids in rows(catalogue, sql, relations=fewer)}
    assert {name: oids for name, oids in after.items() if name != "another"}.items() <= before.items()
    assert before == {name: oids for name, *oids in rows(Catalogue(session()), sql, relations=many)}


def test_relations_of_two_schemas_with_one_name(catalogue: Catalogue) -> None:
    twice = (
        CatalogueRelation("shop", "orders", "table", (column("id", "int"),)),
        CatalogueRelation("old", "orders", "table", (column("key", "bigint"),)),
        CatalogueRelation("revenue", "revenue", "materialized view", (column("part", "string"),), short=True),
        CatalogueRelation("more", "total", "materialized view", (column("part", "string"),)),
    )
    sql = "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    visible = rows(catalogue, f"{sql} WHERE c.oid >= 16384 AND pg_table_is_visible(c.oid) ORDER BY 1", relations=twice)
    assert visible == [("more", "total"), ("revenue", "revenue")]
    shown = rows(catalogue, "SELECT oid::regclass FROM pg_class WHERE oid >= 16384 ORDER BY 1", relations=twice)
    assert shown == ["more.total", "old.orders", "revenue", "shop.orders"]
    sql = "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass"
    assert rows(catalogue, sql, "old.orders", relations=twice) == ["key"]
    assert rows(catalogue, sql, "revenue", relations=twice) == ["part"]
    with pytest.raises(CatalogueError, match='relation "orders" does not exist'):
        rows(catalogue, sql, "orders", relations=twice)


def test_names_that_need_quotes(catalogue: Catalogue) -> None:
    odd = (CatalogueRelation("my-flow", 'Say "hi"', "view", (column("select", "int"),), index_key=("select",)),)
    sql = "SELECT oid::regclass::text FROM pg_class WHERE oid >= 16384 AND relkind = 'v'"
    (name,) = rows(catalogue, sql, relations=odd)
    assert name == '"my-flow"."Say ""hi"""'
    sql = "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = $1::regclass"
    (definition,) = rows(catalogue, sql, name, relations=odd)
    assert definition == f'CREATE INDEX "Say ""hi""_idx" ON {name} USING btree ("select")'


def test_materialized_views_are_views_of_the_standard(catalogue: Catalogue) -> None:
    sql = "SELECT table_name, table_type FROM information_schema.tables ORDER BY 1"
    assert rows(catalogue, sql) == [("orders", "BASE TABLE"), ("recent", "VIEW"), ("totals", "VIEW")]
    sql = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'totals'"
    assert rows(catalogue, sql) == [("part", "text"), ("total", "numeric"), ("n", "bigint")]


def test_system_relations_say_their_types_and_name_nothing_of_others(catalogue: Catalogue) -> None:
    """Users' relations are named only if they were given, in whichever system relation."""
    texts = set()
    for relation in system_relations().values():
        answer = ask(catalogue, f"SELECT * FROM {relation.schema}.{relation.name}", relations=RELATIONS[:1])
        assert answer.rows.column_names == [one.name for one in relation.columns]
        assert list(answer.oids) == [system_types()[one.type].oid for one in relation.columns], relation
        texts |= {str(value) for row in answer.rows.to_pylist() for value in row.values()}
    assert "orders" in texts
    assert not any("totals" in text or "recent" in text for text in texts)


def test_description_before_values(catalogue: Catalogue) -> None:
    sql = "SELECT oid, typname FROM pg_type WHERE oid = any($1::oid[]) AND typname = $2 AND typlen > $3 LIMIT $4"
    found = asyncio.run(catalogue.describe(sql, RELATIONS))
    assert (list(found.parameters), list(found.names), list(found.oids)) == (
        [1028, 19, 21, 20],
        ["oid", "typname"],
        [26, 19],
    )
    found = asyncio.run(catalogue.describe("SHOW time zone", ()))
    assert (list(found.parameters), list(found.names)) == ([], ["TimeZone"])


def test_parameters_are_values_alone(catalogue: Catalogue) -> None:
    sql = "SELECT relname FROM pg_class WHERE relname = $1"
    for value in ("x' OR true --", "orders'; DROP TABLE x", "\\", "é\n", ""):
        assert rows(catalogue, sql, value) == []
    assert rows(catalogue, sql, None) == []
    assert rows(catalogue, "SELECT relname FROM pg_class WHERE relname = any($1)", '{"x, y",orders,NULL}') == ["orders"]
    assert refusal(catalogue, "SELECT 1 FROM pg_class WHERE oid = $1", "x") == "22P02"
    assert refusal(catalogue, "SELECT 1 FROM pg_class WHERE oid = any($1)", "x") == "22P02"
    assert refusal(catalogue, sql) == "08P01"


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("SELECT * FROM pg_catalog.pg_not_there", "42P01"),
        ("SELECT nothing FROM pg_class", "42703"),
        ("SELECT x.* FROM pg_class", "42P01"),
        ("SELECT pg_sleep(10) FROM pg_class", "42883"),
        ("SELECT 'nothing'::regclass", "42P01"),
        ("SELECT 'nothing'::regtype", "42704"),
        ("SELECT oid::nothing FROM pg_class", "42704"),
        ("SELECT c FROM pg_class c", "0A000"),
        ("SELECT (oid, relname) FROM pg_class", "0A000"),
        ("SELECT (42, NULL)", "0A000"),
        ("SELECT relname FROM pg_class JOIN orders ON true", "0A000"),
        ("SELECT format_type(1, 2, 3, 4)", "42883"),
        ("SELECT * FROM pg_catalog.pg_class; SELECT 1", "42601"),
        ("SELECT * FROM pg_catalog.pg_class WHERE )", "42601"),
        ("SELECT oid FROM pg_class UNION SELECT oid, relname FROM pg_class", "42601"),
        ("SELECT 1 / 0 FROM pg_class", "0A000"),
    ],
)
def test_refusals_have_a_code(catalogue: Catalogue, sql: str, sqlstate: str) -> None:
    assert refusal(catalogue, sql) == sqlstate


def test_event_loop_goes_on_during_an_answer(catalogue: Catalogue) -> None:
    """The statement computes until its limit of one second; on the loop, nothing would tick meanwhile."""
    sql = "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c WHERE a.attname || b.attname < c.attname"

    async def counted() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.create_task(tick())
        with pytest.raises(CatalogueError, match="may compute for"):
            await catalogue.answer(sql, (), RELATIONS)
        ticking.cancel()
        return ticks

    assert asyncio.run(counted()) > 10
