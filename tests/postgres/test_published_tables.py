"""The tables of a publication are found with a real PostgreSQL, and followed by what is found."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import psycopg
import pytest
import yaml

from tests.dialects.postgres import Postgres
from tests.postgres.databases import (
    CREDENTIALS,
    Database,
    Row,
    connect,
    create_database,
    drop_slots,
    ingested_rows,
    ingester,
    readable_tables,
    source_of,
    tick,
    tick_until_begun,
)
from tests.storage.dying_appends import die_after
from tidemark_operator.planning.published_tables import (
    PublishedSource,
    WholePublication,
    sought,
    with_published_tables,
)
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable, PublicationTable
from tidemark_protocol.plan.successors import successor
from tidemark_replica.storage.errors import IngestionError, SourceNotReady, TableStopped
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.postgres import published
from tidemark_replica.storage.postgres import source as source_module
from tidemark_replica.storage.postgres.catalogue.membership import find_membership, published_names
from tidemark_replica.storage.postgres.inspect import tables_of
from tidemark_replica.storage.postgres.published import published_tables
from tidemark_replica.storage.postgres.relations import Connection, UpstreamTable, find_definition

pytestmark = [pytest.mark.postgres, pytest.mark.broad]

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres"
TABLES = """
drop publication everything; drop table a, b, "Odd Name";
create schema sales;
create table plain (id int primary key, t text);
create table sales.plain (id int primary key);
create table "Upper" (id int primary key);
create table part (id int primary key, total int generated always as (id + 1) stored, kind regclass, __c int);
create table listed (id int primary key, kept text, hidden text);
create table only_odd (kind regclass); alter table only_odd replica identity full;
create table doubled (id int, "ID" int); alter table doubled replica identity full;
create table no_key (id int);
create table key_left_out (kind regclass primary key, n int);
create table filtered (id int primary key);
create table split (id int primary key) partition by range (id);
create table split_1 partition of split for values from (0) to (10);
create table parent (id int primary key); create table child (primary key (id)) inherits (parent);
create table denied (id int primary key);
create table hidden_rows (id int primary key); alter table hidden_rows enable row level security;
create table not_published (id int primary key);
create publication everything for table plain, sales.plain, "Upper", part, listed (id, kept), only_odd, doubled, no_key,
    key_left_out, filtered where (id > 1), split, only parent, child, denied, hidden_rows;
do $$ begin create role reader login; exception when duplicate_object then null; end $$;
grant usage on schema sales to reader;
grant select on all tables in schema public, sales to reader;
revoke select on denied from reader;
"""
FOLLOWED = {
    ("public", "plain"): (),
    ("sales", "plain"): (),
    ("public", "Upper"): (),
    ("public", "child"): (),
    ("public", "split_1"): (),
    ("public", "part"): ("id",),
    ("public", "listed"): ("id", "kept"),
}
REFUSED = {
    "only_odd": "TypeNotSupported",
    "doubled": "TypeNotSupported",
    "no_key": "ReplicaIdentity",
    "key_left_out": "ReplicaIdentity",
    "filtered": "NotPublished",
    "parent": "TypeNotSupported",
    "denied": "PermissionDenied",
    "hidden_rows": "PermissionDenied",
}


def source_with(database: Database, *tables: PostgresTable, **more: object) -> PostgresSource:
    source = PostgresSource(
        str(database.server.folder),
        database.server.port,
        database.name,
        "db",
        "everything",
        tables,
        ssl_mode="disable",
        all_tables=True,
    )
    return replace(source, **more)


def found(database: Database, *known: PostgresTable) -> dict[tuple[str, str], PublicationTable]:
    tables, unexamined = published_tables(source_with(database, *known), lambda: {"username": "reader", "password": ""})
    assert unexamined == 0
    return {(table.schema, table.table): table for table in tables}


def test_published_tables_are_found_with_what_can_be_followed(database: Database) -> None:
    """Each table by itself. A table that can be followed can be inspected and pinned by the names that were found."""
    database.run(TABLES)
    tables = found(database)
    assert {pair: each.names for pair, each in tables.items() if not each.refused} == FOLLOWED
    assert {pair[1]: each.refused.split(":")[0] for pair, each in tables.items() if each.refused} == REFUSED
    left_out = tables["public", "part"].columns_left_out
    assert [text.split(" ")[0] for text in left_out] == ["total", "kind", "__c"]
    assert "is generated" in left_out[0]
    assert tables["public", "listed"].columns_left_out == ("hidden (the publication leaves it out)",)
    entries = [PostgresTable(f"{s}.{t}", s, t, tables[s, t].names) for s, t in FOLLOWED]
    assert len(tables_of(source_with(database, *entries), lambda: CREDENTIALS)) == len(entries)


def test_known_tables_are_not_looked_at(database: Database) -> None:
    database.run(TABLES)
    known = PostgresTable("p", "public", "plain")
    assert found(database).keys() - found(database, known).keys() == {("public", "plain")}
    with pytest.raises(IngestionError, match="no publication other"):
        published_tables(source_with(database, publication="other"), lambda: CREDENTIALS)


def test_a_look_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how many tables it has not looked at."""
    database.run(TABLES)
    every, none = published_tables(source_with(database), lambda: CREDENTIALS)
    monkeypatch.setattr(published, "MAX_EXAMINED", 4)
    some, others = published_tables(source_with(database), lambda: CREDENTIALS)
    assert (some, others, none) == (every[:4], len(every) - 4, 0)


def test_all_tables_of_a_database_and_of_a_schema(database: Database) -> None:
    database.run(TABLES)
    for publication in ("for all tables", "for tables in schema public"):
        database.run("drop publication everything", f"create publication everything {publication}")
        names = {table for schema, table in found(database) if schema == "public"}
        assert {"plain", "Upper", "split_1", "not_published"} <= names


@pytest.mark.parametrize("seed", range(6))
def test_oracle_the_tables_of_publications_as_postgresql_lists_them(database: Database, seed: int) -> None:
    """By name, schema, or all; with columns, filters, partitions in another schema, and changes by the root. Some
    releases list generated columns, which are not sent."""
    draw = random.Random(seed)
    database.run(
        TABLES,
        "create table sales.split_2 partition of split for values from (10) to (20) partition by range (id)",
        "create table split_3 partition of sales.split_2 for values from (10) to (15)",
        "create table sales.split_4 partition of sales.split_2 for values from (15) to (20)",
        "create unlogged table unlogged (id int primary key)",
        "create view looked_at as select 1",
    )
    tables = ["plain", "sales.plain", "only split", "only sales.split_2", "split_3", "sales.split_4", "part", "child"]
    listed = ["listed (id, kept)", "listed (hidden, id)", "filtered where (id > 1)", "split_1 (id)"]
    for _ in range(12):
        some = ", ".join(draw.sample([*tables, draw.choice(listed)], draw.randrange(1, 6)))
        schemas = draw.choice(["tables in schema sales", "tables in schema public", "tables in schema public, sales"])
        filtered = draw.choice([some, some, f"tables in schema sales, table {some}", "all tables", schemas])
        kind = filtered if filtered.startswith(("all", "tables")) else f"table {filtered}"
        by_root = draw.choice(["", " with (publish_via_partition_root)"])
        database.run("drop publication everything")
        try:
            database.run(f"create publication everything for {kind}{by_root}")
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.InvalidParameterValue):  # columns beside schemas
            database.run(f"create publication everything for tables in schema sales{by_root}")
        with connect(database.server, database.name) as connection:
            listing = connection.execute(
                "select schemaname, tablename, attnames, rowfilter is not null from pg_publication_tables"
                " where pubname = 'everything' order by schemaname <> 'public', schemaname, tablename"
            ).fetchall()
            assert published_names(connection, "everything") == [(schema, table) for schema, table, *_ in listing], kind
            for schema, table, columns, is_filtered in listing:
                (oid,) = connection.execute("select %s::regclass::oid", (f'{schema}."{table}"',)).fetchone() or (0,)
                of = PostgresTable(table, schema, table)
                if is_filtered:
                    with pytest.raises(TableStopped, match="filters rows"):
                        find_membership(connection, source_with(database), of, oid)
                else:
                    sent = [column for column in columns if column != "total"]
                    assert list(find_membership(connection, source_with(database), of, oid).columns) == sent, kind


def test_a_look_waits_for_no_lock(database: Database) -> None:
    """ALTER TABLE, or VACUUM FULL, of a table that is not followed may take hours. The locked table is found, too."""
    database.run(TABLES)
    with connect(database.server, database.name) as other:
        other.execute("lock table plain, part, listed in access exclusive mode")
        began = monotonic()
        tables = found(database)
        assert monotonic() - began < 10
    assert {pair: each.names for pair, each in tables.items() if not each.refused} == FOLLOWED


def test_an_answer_is_bounded_in_bytes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may have 1,600 columns, of which each has a reason. The first table is in each answer, so that looks come
    to an end."""
    odd = ", ".join(f"a_column_of_a_type_that_is_refused_{n} regclass" for n in range(300))
    database.run("drop publication everything; drop table a, b", 'drop table "Odd Name"')
    database.run(*(f"create table wide_{n} (id int primary key, {odd})" for n in range(4)))
    database.run("create publication everything for all tables")
    every, left = published_tables(source_with(database), lambda: CREDENTIALS)
    assert ([table.table for table in every], left) == ([f"wide_{n}" for n in range(4)], 0)
    assert len(every[0].columns_left_out) == published.MAX_LEFT_OUT + 1
    assert every[0].columns_left_out[-1] == f"{300 - published.MAX_LEFT_OUT} more columns"
    assert every[0].names == ("id",)
    size = len(codec.encode(every[0]))
    for bytes_max, count in ((1, 1), (2 * size - 1, 1), (2 * size, 2)):
        monkeypatch.setattr(published, "MAX_BYTES", bytes_max)
        assert published_tables(source_with(database), lambda: CREDENTIALS) == (every[:count], 4 - count)


def test_a_table_that_cannot_be_examined_holds_up_no_other(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's message is its reason; a connection that is lost fails the look."""
    database.run(TABLES)

    def fail(connection: Connection, spec: PostgresSource, table: PostgresTable) -> UpstreamTable:
        if table.table == "plain" and table.schema == "sales":
            connection.execute(failing)
        return find_definition(connection, spec, table)

    monkeypatch.setattr(published, "find_definition", fail)
    failing = "select 1 / 0"
    tables = found(database)
    assert tables.pop(("sales", "plain")).refused == "SourceUnreadable: division by zero"
    assert {pair: each.names for pair, each in tables.items() if not each.refused} == {
        pair: names for pair, names in FOLLOWED.items() if pair != ("sales", "plain")
    }
    failing = "select pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(IngestionError, match="terminating connection"):
        found(database)


def test_the_example_follows_the_publication_of_the_example_database(database: Database) -> None:
    """With the role that shop.sql makes: a table that it may not read is left out, and told."""
    database.run((EXAMPLE / "shop.sql").read_text(), "create table audit_log (id int primary key)")
    document = yaml.safe_load((EXAMPLE / "whole.yaml").read_text())
    server = {"namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "1"}
    example = DataSource.parse({**document, "metadata": document["metadata"] | server})
    assert isinstance(example.source, PostgresSource)
    at = source_with(database)
    source = replace(example.source, host=at.host, port=at.port, database=at.database, ssl_mode="disable")
    publication = WholePublication(source, example.excepted)

    def followed() -> PublishedSource:
        asked = sought(publication, None)
        tables, unexamined = published_tables(asked, lambda: {"username": "tidemark", "password": ""})
        return with_published_tables(publication, None, tables, unexamined)

    names = {table.name: (table.table, table.names) for table in followed().source.tables}
    assert names == {"clients": ("customers", ("id", "name")), "orders": ("orders", ())}
    database.run("create table visits (id int primary key)", "alter publication tidemark add table visits, audit_log")
    (left_out,) = followed().left_out
    assert left_out.startswith("public.visits: PermissionDenied")
    database.run("grant select on visits to tidemark")
    assert [table.name for table in followed().source.tables] == ["clients", "orders", "visits"]


class Tables:
    """Tables `t0` .. that come, go, join and leave the publication, with rows, one transaction after the other.
    `states`: the contents of all tables after each transaction, by name."""

    def __init__(self, database: Database, seed: int) -> None:
        self.random, self.database = random.Random(seed), database
        database.run("drop publication everything; create publication everything")
        self.states: list[dict[str, Counter[Row]]] = [{}]
        self._rows = 0

    def step(self) -> None:
        draw, name = self.random, f"t{self.random.randrange(5)}"
        self._rows += 1
        statement = draw.choice(
            [
                f"create table {name} (id int primary key, n int); insert into {name} values ({self._rows}, 0)",
                f"create table {name} (id int, n int); alter publication everything add table {name}",
                f"alter publication everything add table {name}",
                f"alter publication everything add table {name}",
                f"alter table {name} replica identity full",
                f"alter publication everything drop table {name}",
                f"drop table {name}" if draw.random() < 0.4 else f"update {name} set n = n + 1 where id % 2 = 0",
                *[f"insert into {name} values ({self._rows}, {self._rows}), (-{self._rows}, 1)"] * 6,
                *[f"update {name} set n = n + 1"] * 3,
                f"delete from {name} where id % 3 = 0",
            ]
        )
        try:
            with connect(self.database.server, self.database.name) as connection:
                connection.execute(statement)
        except (psycopg.errors.ProgrammingError, psycopg.errors.ObjectNotInPrerequisiteState):
            return  # it is there, or is not
        self.states.append(self.now())

    def now(self) -> dict[str, Counter[Row]]:
        with connect(self.database.server, self.database.name) as connection:
            connection.execute("set transaction isolation level repeatable read")
            names = connection.execute("select relname from pg_class where relname ~ '^t[0-9]$'").fetchall()
            return {name: Counter(connection.execute(f"select id, n from {name}").fetchall()) for (name,) in names}


def looked(spec: PostgresSource) -> PostgresSource:
    """The source with the tables that a look finds, as the operator adds them."""
    tables, _ = published_tables(replace(spec, all_tables=True), lambda: CREDENTIALS)
    new = tuple(PostgresTable(each.table, each.schema, each.table, each.names) for each in tables if not each.refused)
    if not new:
        return spec
    columns = {table.name: table.columns for table in tables_of(replace(spec, tables=new), lambda: CREDENTIALS)}
    return replace(spec, tables=(*spec.tables, *(replace(t, columns=columns[t.name]) for t in new)))


def check_bound(root: Path, states: list[dict[str, Counter[Row]]]) -> set[str]:
    """At each binding the tables that can be read are together as they were after one transaction, a later one each
    time. Returns the tables that are followed at the end, which are as they are now."""
    at, readable = 0, readable_tables(root)
    for time in sorted(readable):
        rows = {name: ingested_rows(root, name, time) for name in readable[time]}
        while at < len(states) and any(states[at].get(name) != each for name, each in rows.items()):
            at += 1
        assert at < len(states), f"the contents at {time} are of no moment between transactions, or of an earlier one"
    last = max(readable)
    assert {name: ingested_rows(root, name, last) for name in readable[last]} == {
        name: states[-1].get(name) for name in readable[last]
    }
    return readable[last]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 16))])
def test_oracle_histories_of_a_publication(
    server: Postgres, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables join the publication, leave it, are dropped and made again, while they change and the process dies; a look
    now and then adds those that are new. At the end each table that can be followed is, or has a reason."""
    create_database(server, f"published{seed}")
    database = Database(server, f"published{seed}")
    database.run('drop table a, b, "Odd Name"')
    history, draw = Tables(database, seed), random.Random(seed)
    on_gap = "resnapshot" if seed % 2 else "stop"
    monkeypatch.setattr(source_module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(source_module, "RETRY_SECONDS", 0.0)
    spec = source_with(database, all_tables=False, on_gap=on_gap)
    until_death = die_after(monkeypatch, draw.randrange(20, 40))
    one: Ingester | None = None
    time = 1000
    for _ in range(150):
        history.step()
        if draw.random() < 0.15:
            try:
                now = looked(spec)
            except IngestionError:  # a table went between the look and its inspection
                now = spec
            if now != spec:
                spec = now
                if one is not None:
                    source_of(one).close()
                one = None
        if draw.random() < 0.5 and spec.tables:
            time += 50
            one = ticked(tmp_path, spec, one, time)
        if until_death.left <= 0:
            until_death.left = draw.randrange(10, 60)
        if draw.random() < 0.2:
            sleep(0.05)
    until_death.left = 1 << 30
    spec = looked(spec)
    if one is not None:
        source_of(one).close()
    one = ingester(tmp_path, spec)
    one.recover()
    try:
        finish(one, time + 1000, on_gap)
        followed = check_bound(tmp_path, history.states)
        stopped = source_of(one).stop_reasons()
        assert followed | stopped.keys() == {table.name for table in spec.tables}
        published_now = {name for (name,) in database.rows("select tablename from pg_publication_tables")}
        refused = {t.table for t in published_tables(source_with(database), lambda: CREDENTIALS)[0] if t.refused}
        assert published_now <= followed | stopped.keys() | refused
        if on_gap == "resnapshot":
            assert published_now - refused <= followed
    finally:
        source_of(one).close()
        drop_slots(server)


def ticked(root: Path, spec: PostgresSource, one: Ingester | None, time: int) -> Ingester | None:
    """The ingester after the tick; None where it died."""
    try:
        if one is None:
            one = ingester(root, spec)
            one.recover()
        tick(one, time)
    except (KeyboardInterrupt, SourceNotReady, IngestionError):
        if one is not None:
            source_of(one).close()
        return None
    return one


def finish(one: Ingester, time: int, on_gap: str) -> None:
    """Ticks until no table is to begin, or none can."""
    source = source_of(one)
    if on_gap == "stop":
        source_module.RETRY_SECONDS = 3600.0
        tick_until_begun(one, time)
        return
    for at in range(time, time + 5000):
        tick(one, at)
        if source._late is None and at > time + 100:
            return
        sleep(0.02)


def test_a_name_that_comes_again_is_another_table(database: Database, tmp_path: Path) -> None:
    """The operator names a table that was taken out of the spec, and is wanted again, `b.2`, without a `b`."""
    database.run("insert into b (k) values (1)", "insert into a (id) values (1)")
    every = source_with(database, all_tables=False)
    a, b = PostgresTable("a", "public", "a", ("id",)), PostgresTable("b", "public", "b", ("k",))
    spec = replace(every, tables=(a, b))

    def ingest(spec: PostgresSource, time: int) -> None:
        columns = {table.name: table.columns for table in tables_of(spec, lambda: CREDENTIALS)}
        one = ingester(tmp_path, replace(spec, tables=tuple(replace(t, columns=columns[t.name]) for t in spec.tables)))
        one.recover()
        tick_until_begun(one, time)
        source_of(one).close()

    ingest(spec, 1000)
    ingest(replace(every, tables=(a,)), 10_000)
    database.run("insert into b (k) values (2)")
    again = replace(b, name=successor("b", ["b"]))
    ingest(replace(every, tables=(a, again)), 20_000)
    last = max(readable_tables(tmp_path))
    assert ingested_rows(tmp_path, "b.2", last) == Counter([(1,), (2,)])
