"""CREATE TABLE and DROP TABLE over the protocol: the DataSource that is stored, types, names, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.gateway.registries import shard_of
from tests.gateway.source_tables import PINNED, ingested
from tests.pgwire.served import ALLOWED, ONE, Served, served
from tests.pgwire.test_clients import psql
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.gateway.definitions import readiness
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.types import Column, SqlType

MAY_DEFINE = ("create datasources in namespace ns", "create dataflows in namespace ns")
MAY_ALTER = tuple(f"patch datasources {name} in namespace ns" for name in ("orders", "shop", "topic"))
MAY_DROP = tuple(f"delete datasources {name} in namespace ns" for name in ("orders", "shop", "topic", "s"))
ALL = """CREATE TABLE IF NOT EXISTS "order-lines" (
    id int8 NOT NULL, Line integer NULL, "At" timestamp with time zone CONSTRAINT "set" NOT NULL,
    price numeric(12, 2), n decimal(5), ok bool, small int2, half real, whole double precision, f float8,
    name character varying, t text, v varchar, d date,
    CONSTRAINT "pk" PRIMARY KEY (ID, line)
) WITH (tick = '200ms', deletion_policy = delete, append_only = on)"""
TYPES = {
    "id": "BIGINT",
    "line": "INT",
    "At": "TIMESTAMP",
    "price": "DECIMAL(12,2)",
    "n": "DECIMAL(5,0)",
    "ok": "BOOLEAN",
    "small": "SMALLINT",
    "half": "FLOAT",
    "whole": "DOUBLE",
    "f": "DOUBLE",
    **dict.fromkeys(("name", "t", "v"), "STRING"),
    "d": "DATE",
}


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with (
        pytest.MonkeyPatch.context() as patch,
        served(tmp_path_factory.mktemp("tables"), (*ALLOWED, *MAY_DEFINE, *MAY_DROP, *MAY_ALTER)) as made,
    ):
        patch.setattr(readiness, "KNOWN_SECONDS", 0.0)  # no operator pins the tables
        yield made


@pytest.fixture
def server(module_server: Served) -> Served:
    module_server.says(lambda sql, dialect: ONE)
    module_server.objects.sources.clear()
    module_server.objects.bodies.clear()
    return module_server


def test_a_table_is_a_data_source_of_its_name(server: Served) -> None:
    stored = server.objects.sources
    with server.connect() as connection:
        assert connection.execute(ALL.encode()).statusmessage == "CREATE TABLE"
        made = stored["order-lines"]
        assert made["metadata"]["annotations"]["compute.tidemark.dev/changed-by"] == "anne"
        spec = dict(made["spec"])
        [table] = spec.pop("table")["tables"]
        assert spec == {"instance": "default", "tick": "200ms", "deletionPolicy": "Delete"}
        columns = [{"name": name, "type": type} for name, type in TYPES.items()]
        columns[2]["nullable"] = False  # those of the key say it anyway
        assert table == {"name": "order-lines", "columns": columns, "primaryKey": ["id", "line"], "appendOnly": True}
        notices = list[str]()
        connection.add_notice_handler(
            lambda notice: notices.append(f"{notice.severity} {notice.sqlstate} {notice.message_primary}")
        )
        connection.execute(ALL.encode())
        with pytest.raises(psycopg.errors.DuplicateTable, match='relation "order-lines" already exists'):
            connection.execute(ALL.replace("IF NOT EXISTS", "").encode())
        connection.execute("CREATE SOURCE TABLE orders (id bigint PRIMARY KEY, name text) WITH (instance = other)")
        assert stored["orders"]["spec"]["instance"] == "other"
        assert stored["orders"]["spec"]["table"]["tables"][0]["primaryKey"] == ["id"]
        assert connection.execute("DROP TABLE orders.orders").statusmessage == "DROP TABLE"
        connection.execute("DROP TABLE IF EXISTS public.orders")
        with pytest.raises(psycopg.errors.UndefinedTable, match='table "orders" does not exist'):
            connection.execute("DROP TABLE orders RESTRICT")
    waits = "WARNING 01000 DataSource {} is stored, and takes no rows yet: Starting: nothing is known of it yet"
    assert notices == [
        'NOTICE 42P07 relation "order-lines" already exists, skipping',
        waits.format("order-lines"),
        waits.format("orders"),
        'NOTICE 00000 table "orders" does not exist, skipping',
    ]
    assert list(stored) == ["order-lines"]


def test_tables_of_one_schema_are_tables_of_one_data_source(server: Served) -> None:
    notices = list[str]()
    with server.connect() as connection:
        connection.add_notice_handler(lambda n: notices.append(f"{n.severity} {n.sqlstate} {n.message_primary}"))
        connection.execute("CREATE TABLE shop.orders (id bigint PRIMARY KEY) WITH (tick = '200ms')")
        connection.execute('CREATE TABLE IF NOT EXISTS "shop"."lines" (id bigint, line int, PRIMARY KEY (id, line))')
        notices.clear()
        connection.execute("CREATE TABLE IF NOT EXISTS shop.lines (id bigint)")
        assert notices[0] == 'NOTICE 42P07 relation "shop.lines" already exists, skipping'
        with pytest.raises(psycopg.errors.DuplicateTable, match=r'relation "shop\.orders" already exists'):
            connection.execute("CREATE TABLE shop.orders (id bigint)")
        with pytest.raises(psycopg.errors.DuplicateTable):
            connection.execute("CREATE TABLE shop (id bigint)")
        made = server.objects.sources["shop"]["spec"]
        assert (made["tick"], made["instance"]) == ("200ms", "default")
        assert [(each["name"], each["primaryKey"]) for each in made["table"]["tables"]] == [
            ("orders", ["id"]),
            ("lines", ["id", "line"]),
        ]
        connection.execute("CREATE TABLE public.alone (id bigint)")
        connection.execute("DROP TABLE IF EXISTS shop.nothing")
        assert notices[-1] == 'NOTICE 00000 table "shop.nothing" does not exist, skipping'
        connection.execute("DROP TABLE shop.orders")
        connection.execute("DROP TABLE shop.lines")
    assert list(server.objects.sources) == ["alone"]


def test_types_are_of_the_sessions_dialect(server: Served) -> None:
    with server.connect() as connection:
        connection.execute("SET dialect = spark")
        connection.execute("CREATE TABLE `t` (a tinyint, b float, c timestamp, d decimal, e string, f long, g short)")
        columns = server.objects.sources["t"]["spec"]["table"]["tables"][0]["columns"]
    assert [each["type"] for each in columns] == [
        "TINYINT",
        "FLOAT",
        "TIMESTAMP",
        "DECIMAL(10,0)",
        "STRING",
        "BIGINT",
        "SMALLINT",
    ]


def test_objects_of_kubectl_are_dropped_unless_they_are_more_than_a_table(server: Served) -> None:
    stored = server.objects.sources
    columns = [{"name": "id", "type": "BIGINT"}]
    tables = [{"name": name, "columns": columns} for name in ("orders", "lines")]
    for name, spec in (
        ("shop", {"table": {"tables": tables}}),
        ("topic", {"kafka": {"tables": tables[:1]}}),
        ("s", {"table": {"tables": tables[:1]}}),
    ):
        metadata = {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"}
        stored[name] = {"metadata": metadata, "spec": {"instance": "i", **spec}}
    with server.connect() as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"several tables \(orders, lines\): write shop"):
            connection.execute("DROP TABLE shop")
        connection.execute("DROP TABLE shop.orders")
        assert [each["name"] for each in stored["shop"]["spec"]["table"]["tables"]] == ["lines"]
        with pytest.raises(psycopg.errors.WrongObjectType):
            connection.execute("DROP TABLE topic")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("DROP TABLE s.lines")
        connection.execute("DROP TABLE s.orders")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="anne may not delete datasources other"):
            connection.execute("DROP TABLE other")
    assert list(stored) == ["shop", "topic"]


def test_a_dropped_table_that_still_takes_rows_is_told(server: Served) -> None:
    columns = [{"name": "id", "type": "BIGINT"}]
    tables = [{"name": name, "columns": columns} for name in ("orders", "lines")]
    metadata = {"name": "shop", "namespace": "ns", "uid": "shop", "generation": 1, "resourceVersion": "1"}
    server.objects.sources["shop"] = {"metadata": metadata, "spec": {"instance": "i", "table": {"tables": tables}}}
    known = [replace(ingested(name), table=replace(ingested(name).table, name=name)) for name in ("orders", "lines")]
    state = SourceState(Key(DATA_SOURCES, "ns", "shop"), "shop", "i", pinned=replace(PINNED, tables=tuple(known)))
    state.edit = IngestionFailure("TableInUse", "Dataflow late reads it")
    notices = list[str]()
    server.loop.call(lambda: server.registry.put_source(state))
    try:
        with server.connect() as connection:
            connection.add_notice_handler(lambda each: notices.append(f"{each.sqlstate} {each.message_primary}"))
            assert connection.execute("DROP TABLE shop.lines").statusmessage == "DROP TABLE"
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as refused:
                connection.execute("CREATE SCHEMA IF NOT EXISTS shop")
    finally:
        server.loop.call(lambda: server.registry.forget(state.key))
    assert notices == [
        "01000 DataSource shop is stored without table lines, and rows are still taken for it: TableInUse: Dataflow "
        "late reads it"
    ]
    assert "a schema comes with its first table" in str(refused.value.diag.message_hint)


def test_a_table_and_a_view_have_no_name_in_common(server: Served) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE orders (id bigint)")
        for kind in ("VIEW", "MATERIALIZED VIEW"):
            with pytest.raises(psycopg.errors.DuplicateTable):
                connection.execute(f"CREATE {kind} orders AS SELECT a FROM s.a".encode())
        connection.execute("CREATE VIEW lines AS SELECT a FROM s.a")
        with pytest.raises(psycopg.errors.DuplicateTable):
            connection.execute("CREATE TABLE lines (id bigint)")
        connection.execute("CREATE TABLE IF NOT EXISTS lines (id bigint)")
    assert (list(server.objects.sources), list(server.objects.bodies)) == (["orders"], ["lines"])


def test_a_view_does_not_take_the_name_of_a_source_that_names_its_only_table(server: Served) -> None:
    columns = [{"name": "id", "type": "BIGINT"}]
    for name, tables in (("shop", ("orders",)), ("several", ("orders", "lines"))):
        metadata = {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"}
        spec = {"instance": "i", "table": {"tables": [{"name": each, "columns": columns} for each in tables]}}
        server.objects.sources[name] = {"metadata": metadata, "spec": spec}
    with server.connect() as connection:
        with pytest.raises(psycopg.errors.DuplicateTable):
            connection.execute("CREATE VIEW shop AS SELECT a FROM s.a")
        connection.execute("CREATE VIEW several AS SELECT a FROM s.a")
    assert list(server.objects.bodies) == ["several"]


def test_a_column_is_added_to_a_table_of_whoever_made_it(server: Served) -> None:
    columns = [{"name": "id", "type": "BIGINT"}]
    tables = [{"name": name, "columns": columns, "primaryKey": ["id"]} for name in ("orders", "lines")]
    for name, spec in (("shop", {"table": {"tables": tables}}), ("topic", {"kafka": {"tables": tables[:1]}})):
        metadata = {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"}
        server.objects.sources[name] = {"metadata": metadata, "spec": {"instance": "i", **spec}}
    notices = list[str]()
    with server.connect() as connection:
        connection.add_notice_handler(lambda n: notices.append(f"{n.severity} {n.sqlstate} {n.message_primary}"))
        done = connection.execute("ALTER TABLE ONLY shop.orders ADD COLUMN IF NOT EXISTS vip bool NULL")
        assert done.statusmessage == "ALTER TABLE"
        connection.execute("ALTER TABLE shop.orders ADD price numeric(12, 2)")
        with pytest.raises(psycopg.errors.DuplicateColumn, match=r'column "VIP" of relation "shop\.orders" already'):
            connection.execute('ALTER TABLE shop.orders ADD COLUMN "VIP" text')
        connection.execute("ALTER TABLE shop.orders ADD COLUMN IF NOT EXISTS vip text")
        connection.execute("ALTER TABLE IF EXISTS orders ADD COLUMN vip bool")
        for text, error in (
            ("ALTER TABLE shop ADD COLUMN a int", psycopg.errors.AmbiguousAlias),
            ("ALTER TABLE shop.other ADD COLUMN a int", psycopg.errors.UndefinedTable),
            ("ALTER TABLE topic ADD COLUMN a int", psycopg.errors.WrongObjectType),
            ("ALTER TABLE closed ADD COLUMN a int", psycopg.errors.InsufficientPrivilege),
        ):
            with pytest.raises(error):
                connection.execute(text.encode())
    more = [{"name": "vip", "type": "BOOLEAN"}, {"name": "price", "type": "DECIMAL(12,2)"}]
    assert server.objects.sources["shop"]["spec"]["table"]["tables"] == [
        {**tables[0], "columns": [*columns, *more]},
        tables[1],
    ]
    waits = "WARNING 01000 DataSource shop is stored, and its table has not the columns yet: Starting: nothing is known"
    assert notices == [
        f"{waits} of it yet",
        f"{waits} of it yet",
        'NOTICE 42701 column "vip" of relation "shop.orders" already exists, skipping',
        f"{waits} of it yet",
        'NOTICE 00000 relation "orders" does not exist, skipping',
    ]


def test_in_a_transaction_no_table_is_created(server: Served) -> None:
    with server.connect() as connection:
        for text in ("CREATE TABLE orders (id bigint)", "ALTER TABLE orders ADD a int", "DROP TABLE orders"):
            with pytest.raises(psycopg.errors.ActiveSqlTransaction), connection.transaction():
                connection.execute(text.encode())
        connection.execute("SET default_transaction_read_only = on")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("CREATE TABLE orders (id bigint)")
    assert server.objects.sources == {}


def test_psql_shows_a_table_by_its_one_name(server: Served) -> None:
    columns = Column("id", SqlType("bigint"), nullable=False), Column("name", SqlType("string"))
    table = ingested("orders")
    source = replace(table.table, name="orders", columns=columns, keys=((0,),))
    pinned = replace(PINNED, tables=(replace(table, table=source, shard=shard_of("orders")),))
    state = SourceState(Key(DATA_SOURCES, "ns", "orders"), "u", "default", pinned=pinned)
    server.loop.call(lambda: server.registry.put_source(state))
    done = psql(server, r"\d orders", r"\dt")
    assert (done.returncode, done.stderr) == (0, "")
    assert "id,bigint,,not null," in done.stdout
    assert "orders,orders,table,tidemark" in done.stdout


def test_a_table_is_not_visible_by_a_name_that_means_another(server: Served) -> None:
    """`orders` is the only table of DataSource orders in SQL, and not shop.orders."""
    made = [Key(DATA_SOURCES, "ns", name) for name in ("orders", "shop")]
    for key, name in zip(made, ("lines", "orders"), strict=True):
        source = replace(ingested(name).table, name=name)
        pinned = replace(PINNED, tables=(replace(ingested(name), table=source, shard=shard_of(name)),))
        state = SourceState(key, f"u-{key.name}", "default", pinned=pinned)
        server.loop.call(partial(server.registry.put_source, state))
    shown = (
        "SELECT n.nspname, c.relname, pg_table_is_visible(c.oid) FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = c.relnamespace WHERE c.relname IN ('orders', 'lines') ORDER BY 1"
    )
    with server.connect() as connection:
        assert connection.execute(shown).fetchall() == [("orders", "lines", True), ("shop", "orders", False)]
    for key in made:
        server.loop.call(partial(server.registry.forget, key))


@pytest.mark.parametrize(("text", "sqlstate"), [
    ("CREATE TABLE other_name (id bigint)", "42602"),
    ("CREATE TABLE shop.other_name (id bigint)", "42602"),
    ("CREATE TABLE shop.orders.lines (id bigint)", "42601"),
    ("CREATE TABLE shop.orders (id bigint) WITH (sekret = 1)", "22023"),
    ("CREATE TABLE t (id nothing)", "42704"),
    ("CREATE TABLE t (id string)", "42704"),
    ("CREATE TABLE t (id varchar(10))", "0A000"),
    ("CREATE TABLE t (id timestamp)", "0A000"),
    ("CREATE TABLE t (id timestamptz(3))", "0A000"),
    ("CREATE TABLE t (id numeric)", "0A000"),
    ("CREATE TABLE t (id numeric(39, 2))", "22023"),
    ("CREATE TABLE t (id numeric(3, 4))", "22023"),
    ("CREATE TABLE t (id bigint[])", "0A000"),
    ("CREATE TABLE t (id serial)", "0A000"),
    ("CREATE TABLE t (id uuid)", "0A000"),
    ("CREATE TABLE t (id bigint NOT)", "42601"),
    ("CREATE TABLE t (id bigint DEFAULT 1)", "0A000"),
    ("CREATE TABLE t (id bigint UNIQUE)", "0A000"),
    ("CREATE TABLE t (id bigint, CHECK (id > 1))", "0A000"),
    ("CREATE TABLE t (id bigint REFERENCES s)", "0A000"),
    ("CREATE TABLE t (id float8 PRIMARY KEY)", "0A000"),
    ("CREATE TABLE t (id bigint, ID text)", "42701"),
    ("CREATE TABLE t (id bigint, PRIMARY KEY (id, id))", "42701"),
    ("CREATE TABLE t (id bigint PRIMARY KEY, PRIMARY KEY (id))", "42P16"),
    ("CREATE TABLE t (id bigint, PRIMARY KEY (x))", "42703"),
    ("CREATE TABLE t (id bigint,)", "42601"),
    ("CREATE TABLE t ()", "42601"),
    ("CREATE TABLE t", "42601"),
    ("CREATE TABLE t (id bigint) WITH (sekret = 1)", "22023"),
    ("CREATE TABLE t (id bigint) WITH (adopt = perhaps)", "22023"),
    ("CREATE TABLE t (id bigint) INHERITS (s)", "0A000"),
    ("CREATE TABLE t (id bigint) x", "42601"),
    ("CREATE TABLE t AS SELECT 1", "0A000"),
    ("CREATE TEMP TABLE t (id bigint)", "0A000"),
    ("CREATE UNLOGGED TABLE t (id bigint)", "0A000"),
    ("ALTER TABLE orders ADD COLUMN a int NOT NULL", "0A000"),
    ("ALTER TABLE orders ADD COLUMN a int PRIMARY KEY", "0A000"),
    ("ALTER TABLE orders ADD COLUMN a int DEFAULT 1", "0A000"),
    ("ALTER TABLE orders ADD COLUMN a int, ADD COLUMN b int", "0A000"),
    ("ALTER TABLE orders ADD CONSTRAINT k PRIMARY KEY (a)", "0A000"),
    ("ALTER TABLE orders ADD PRIMARY KEY (a)", "0A000"),
    ("ALTER TABLE orders DROP COLUMN a", "0A000"),
    ("ALTER TABLE orders ALTER COLUMN a TYPE text", "0A000"),
    ("ALTER TABLE orders RENAME TO o", "0A000"),
    ("ALTER TABLE orders ADD COLUMN a varchar(3)", "0A000"),
    ("ALTER TABLE orders ADD COLUMN a", "42601"),
    ("ALTER TABLE orders ADD COLUMN a int x", "42601"),
    ("ALTER TABLE orders", "0A000"),
    ("ALTER TABLE orders ADD COLUMN a int", "42P01"),
    ("DROP TABLE orders CASCADE", "0A000"),
    ("DROP TABLE orders, s", "0A000"),
    ("TRUNCATE orders", "25006"),
])  # fmt: skip
def test_what_a_table_here_does_not_have_is_refused(server: Served, text: str, sqlstate: str) -> None:
    with server.connect() as connection:
        with pytest.raises(psycopg.Error) as failed:
            connection.execute(text.encode())
        assert failed.value.sqlstate == sqlstate, failed.value
    assert server.objects.sources == {}


def test_the_position_of_a_wrong_type_counts_in_the_clients_text(server: Served) -> None:
    text = "CREATE TABLE t (id bigint,\n a nothing)"
    with server.connect() as connection, pytest.raises(psycopg.errors.UndefinedObject) as failed:
        connection.execute(text.encode())
    assert failed.value.diag.statement_position == str(text.index("nothing") + 1)


def test_an_operator_without_definitions_refuses_tables(tmp_path: Path) -> None:
    with served(tmp_path, (*ALLOWED, *MAY_DEFINE, *MAY_DROP), defines=False) as server, server.connect() as connection:
        for text in ("CREATE TABLE orders (id bigint)", "DROP TABLE IF EXISTS orders"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="--no-definitions"):
                connection.execute(text.encode())
        assert server.objects.sources == {}
