"""Definitions that change what rows read as, while no WAL says anything of the rows: nothing that was read after such a
change is bound, also where the definition is as before when it is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.postgres.databases import Database, connect, source_of, tick
from tests.postgres.test_stops import ingesting, rows
from tests.postgres.test_stops import ticks_read_everything as ticks_read_everything
from tests.waiting import until
from tidemark_protocol.plan.ingestion import PostgresTable
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable
from tidemark_replica.storage.postgres import source as module
from tidemark_replica.storage.postgres import watch
from tidemark_replica.storage.postgres.watch import Findings

SCHEMA = """
create type mood as enum ('ok', 'bad');
create domain moods as mood[];
create type place as (x int, y int);
create type site as (label text, at place);
create table t (id int, n int, m int, mood mood, moods moods, site site);
alter table t replica identity full;
insert into t values (1, 10, 20, 'ok', array['ok', 'bad']::mood[], ('a', (1, 2)));
"""
OTHER_SCHEMA = """
create table other (id int);
alter table other replica identity full;
drop publication everything;
create publication everything for table t, other;
"""
T = PostgresTable("t", "public", "t")
OTHER = PostgresTable("other", "public", "other")
INSERT = "insert into t (id, n, m) values (2, 11, 21)"

pytestmark = [pytest.mark.postgres, pytest.mark.broad]


class Change(NamedTuple):
    """Statements, each a transaction of its own, and the reason for which the table stops."""

    reason: str
    statements: tuple[str, ...]


CHANGES = {
    "values altered": Change("ColumnChanged", ("alter table t alter n type int using n + 1", INSERT)),
    "values altered and back": Change(
        "ColumnChanged", ("alter table t alter n type int using -n", INSERT, "alter table t alter n type int using -n")
    ),
    "column back": Change("ColumnChanged", ("alter table t drop n, add n int", INSERT)),
    "names swapped": Change(
        "ColumnChanged",
        ("alter table t rename n to x; alter table t rename m to n; alter table t rename x to m", INSERT),
    ),
    "names swapped and back": Change(
        "ColumnChanged",
        (
            "alter table t rename n to x; alter table t rename m to n; alter table t rename x to m",
            INSERT,
            "alter table t rename n to x; alter table t rename m to n; alter table t rename x to m",
        ),
    ),
    "table replaced": Change(
        "TableMissing",
        (
            "alter table t rename to t2; create table t (like t2); alter table t replica identity full",
            "alter publication everything add table t",
            INSERT,
        ),
    ),
    "table replaced and back": Change(
        "TableMissing",
        (
            "alter table t rename to t2; create table t (like t2)",
            "insert into t2 values (2)",
            "drop table t; alter table t2 rename to t",
        ),
    ),
    "not published for a while": Change(
        "NotPublished",
        ("alter publication everything drop table t", INSERT, "alter publication everything add table t"),
    ),
    "filtered for a while": Change(
        "NotPublished",
        (
            "alter publication everything drop table t",
            "alter publication everything add table t where (id > 9)",
            INSERT,
            "alter publication everything drop table t",
            "alter publication everything add table t",
        ),
    ),
    "label renamed": Change("ColumnChanged", ("alter type mood rename value 'ok' to 'fine'", INSERT)),
    "label renamed and back": Change(
        "ColumnChanged",
        (
            "alter type mood rename value 'ok' to 'fine'",
            "update t set id = 2",
            "alter type mood rename value 'fine' to 'ok'",
        ),
    ),
    "attribute added": Change("ColumnChanged", ("alter type place add attribute z int", INSERT)),
    "attribute added and dropped": Change(
        "ColumnChanged",
        ("alter type place add attribute z int", INSERT, "alter type place drop attribute z"),
    ),
    "inherited": Change("TypeNotSupported", ("create table child () inherits (t)", INSERT)),
}


@pytest.fixture(autouse=True)
def tables(database: Database, ticks_read_everything: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue is looked at because of the changes alone."""
    database.run(SCHEMA, OTHER_SCHEMA)
    monkeypatch.setattr(module, "LOOK_SECONDS", 3600.0)


def test_nothing_is_bound_past_a_definition_that_changed_rows(database: Database, tmp_path: Path) -> None:
    """Each change happens to a table in a schema of its own. Another table takes what was committed meanwhile."""
    schemas = {f"c{number}": change for number, change in enumerate(CHANGES)}
    for schema in schemas:
        database.run(f"create schema {schema}; set local search_path to {schema}", SCHEMA)
        database.run(f"alter publication everything add table {schema}.t")
    tables = [PostgresTable(schema, schema, "t") for schema in schemas]
    with ingesting(tmp_path, database.spec(*tables, OTHER)) as one:
        tick(one, 1000)
        for schema in schemas:
            database.run(f"update {schema}.t set m = m + 1")
        tick(one, 1100)
        assert not source_of(one).stop_reasons()
        before = {schema: rows(tmp_path, schema) for schema in schemas}
        for schema, change in schemas.items():
            for statement in CHANGES[change].statements:
                database.run(f"set local search_path to {schema}", statement)
        database.run("insert into other values (1)")
        tick(one, 1200)
        stopped = {schemas[name]: text.split(":")[0] for name, text in source_of(one).stop_reasons().items()}
    assert stopped == {name: change.reason for name, change in CHANGES.items()}
    assert {schema: rows(tmp_path, schema) for schema in schemas} == before
    assert rows(tmp_path, "other") == Counter([(1,)])


def test_kinds_of_changes_that_were_not_published_for_a_while(database: Database, tmp_path: Path) -> None:
    with ingesting(tmp_path, database.spec(T, OTHER)) as one:
        tick(one, 1000)
        database.run("alter publication everything set (publish = 'update, delete, truncate')")
        database.run("insert into other values (1)")
        database.run("alter publication everything set (publish = 'insert, update, delete, truncate')")
        database.run("insert into other values (2)")
        tick(one, 1100)
        assert {text.split(":")[0] for text in source_of(one).stop_reasons().values()} == {"NotPublished"}
    assert not rows(tmp_path, "other")


def test_what_leaves_rows_as_they_are_stops_nothing(database: Database, tmp_path: Path) -> None:
    harmless = (
        "alter type mood add value 'better' before 'bad'",
        "alter type place rename attribute x to east",
        "alter type mood rename to feeling",
        "vacuum full t",
        "analyze t",
        "truncate other restart identity",
        "create table more (id int); alter publication everything add table more",
        "alter domain moods set default '{}'",
        "grant select on t to public",
    )
    with ingesting(tmp_path, database.spec(T, OTHER)) as one:
        tick(one, 1000)
        for number, statement in enumerate(harmless):
            with connect(database.server, database.name, autocommit=True) as connection:
                connection.execute(statement)
            database.run("update t set n = n + 1", "insert into other values (2)")
            tick(one, 1100 + 100 * number)
            assert not source_of(one).stop_reasons(), statement
        assert [row[1] for row in rows(tmp_path, "t")] == [10 + len(harmless)]


def test_a_column_comes_that_a_publication_with_a_list_leaves_out(database: Database, tmp_path: Path) -> None:
    """The columns that are followed are published still. The columns of a table that is inspected then are not."""
    database.run(
        "create table listed (id int primary key, note text); insert into listed values (1, 'a')",
        "alter publication everything add table listed (id, note)",
    )
    listed = PostgresTable("listed", "public", "listed")
    with ingesting(tmp_path, database.spec(listed)) as one:
        tick(one, 1000)
        database.run("alter table listed add n int default 7", "insert into listed values (2, 'b')")
        tick(one, 1100)
        assert not source_of(one).stop_reasons()
        database.run("alter publication everything set table listed (id, note, n)", "insert into listed values (3)")
        tick(one, 1200)
        assert source_of(one).stop_reasons()["listed"].startswith("NotPublished")
    assert rows(tmp_path, "listed") == Counter([(1, "a"), (2, "b")])
    database.run("alter publication everything set table listed (id, note)")
    with pytest.raises(SourceUnusable, match="leaves out column n; publish it"):
        database.spec(listed)


def test_a_table_that_a_publication_names_is_never_unlogged(database: Database) -> None:
    """PostgreSQL refuses it, so VACUUM FULL and the like need not stop such a table."""
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="because it is part of a publication"):
        database.run("alter table t set unlogged")


class Rewritten(NamedTuple):
    """Statements, each a transaction of its own unless it is a list, and the reasons for which tables stop: `t`, which
    has a TOAST table, and `bare`, which has none."""

    statements: tuple[str | list[str], ...]
    t: str = ""
    bare: str = ""


UNLOGGED = ("alter table {0} set unlogged", "insert into {0} (id) values (2)", "alter table {0} set logged")
REWRITTEN = {
    "unlogged": Rewritten(UNLOGGED, "NotPublished", "NotPublished"),
    "truncated": Rewritten(("truncate {0}", "insert into {0} (id) values (2)")),
    "truncated and filled": Rewritten((["truncate {0}", "insert into {0} (id) values (2)"],)),
    "truncated, then unlogged": Rewritten(("truncate {0}", *UNLOGGED), "NotPublished", "NotPublished"),
    "truncated and unlogged at once": Rewritten((["truncate {0}", *UNLOGGED],), "NotPublished", "NotPublished"),
    "unlogged, then truncated": Rewritten((*UNLOGGED, "truncate {0}", "insert into {0} (id) values (2)")),
    "truncated in a savepoint": Rewritten(
        (["savepoint one", "truncate {0}", "insert into {0} (id) values (2)", "release one"],), "", "NotPublished"
    ),
    "truncated, and a default": Rewritten(
        ("truncate {0}", "alter table {0} alter id set default 7", "insert into {0} (id) values (2)"),
        "",
        "ColumnChanged",
    ),
}


@pytest.mark.parametrize("how", REWRITTEN)
def test_a_table_that_no_publication_names_may_have_been_unlogged(database: Database, tmp_path: Path, how: str) -> None:
    """PostgreSQL allows it where the publication has all tables. A TRUNCATE makes another file, too."""
    database.run("create table bare (id int); alter table bare replica identity full; insert into bare values (1)")
    database.run("drop publication everything", "create publication everything for all tables")
    bare = PostgresTable("bare", "public", "bare")
    with ingesting(tmp_path, database.spec(T, bare, OTHER)) as one:
        tick(one, 1000)
        for table in ("t", "bare"):
            for statement in REWRITTEN[how].statements:
                together = statement if isinstance(statement, list) else [statement]
                database.run(*(each.format(table) for each in together))
        database.run("insert into other values (1)")
        tick(one, 1100)
        tick(one, 1200)
        stopped = {name: text.split(":")[0] for name, text in source_of(one).stop_reasons().items()}
    reasons = {"t": REWRITTEN[how].t, "bare": REWRITTEN[how].bare}
    assert stopped == {name: reason for name, reason in reasons.items() if reason}
    for name, reason in reasons.items():
        assert [row[0] for row in rows(tmp_path, name)] == ([1] if reason else [2])
    assert rows(tmp_path, "other") == Counter([(1,)])


def test_a_vacuumed_table_that_no_publication_names(database: Database, tmp_path: Path) -> None:
    """VACUUM FULL keeps the table of long values, as no SET UNLOGGED does; without one it looks the same."""
    database.run("drop publication everything", "create publication everything for all tables")
    with ingesting(tmp_path, database.spec(T, OTHER)) as one:
        tick(one, 1000)
        with connect(database.server, database.name, autocommit=True) as connection:
            connection.execute("vacuum full t")
            connection.execute("vacuum full other")
        database.run(INSERT)
        tick(one, 1100)
        assert list(source_of(one).stop_reasons()) == ["other"]
    assert rows(tmp_path, "t").total() == 2


def test_a_truncate_between_reading_and_looking_excuses_nothing_later(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks see one that was not read yet. It is found by name, and one that comes later excuses nothing."""
    database.run("drop publication everything", "create publication everything for all tables")
    truncates, look = 2, watch.look

    def truncated_before(*args: Any) -> Findings:
        nonlocal truncates
        if truncates:
            truncates -= 1
            database.run("truncate other", "insert into other values (3)")
        return look(*args)

    with ingesting(tmp_path, database.spec(OTHER)) as one:
        tick(one, 1000)
        monkeypatch.setattr(module, "look", truncated_before)
        database.run("truncate other", "insert into other values (3)")
        tick(one, 1100)
        tick(one, 1200)
        assert not truncates
        assert not source_of(one).stop_reasons()
        assert rows(tmp_path, "other") == Counter([(3,)])
        for statement in UNLOGGED:
            database.run(statement.format("other"))
        database.run("insert into other values (4)")
        tick(one, 1300)
        assert (
            source_of(one).stop_reasons()["other"].startswith("NotPublished: table other: all rows were written anew")
        )


def test_a_load_between_two_looks_is_found_by_the_next_one(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look of a tick, as `other` has another file, sees the new file of `t`, and pins it not."""
    database.run("drop publication everything", "create publication everything for all tables")
    looks, look = list[Findings](), watch.look

    def unlogged_between(*args: Any) -> Findings:
        if not looks:
            database.run("truncate other")
        elif len(looks) == 1:
            for statement in UNLOGGED:
                database.run(statement.format("t"))
        looks.append(look(*args))
        return looks[-1]

    with ingesting(tmp_path, database.spec(T, OTHER)) as one:
        tick(one, 1000)
        monkeypatch.setattr(module, "look", unlogged_between)
        database.run("insert into other values (1)")
        tick(one, 1100)
        assert len(looks) == 2
        assert not source_of(one).stop_reasons()
        database.run("insert into other values (3)")
        tick(one, 1200)
        assert list(source_of(one).stop_reasons()) == ["t"]
    assert rows(tmp_path, "other") == Counter([(3,)])


@contextmanager
def without_standby(database: Database) -> Iterator[None]:
    """Transactions are committed, and wait for a standby that there is not before they are visible."""
    with connect(database.server, database.name, autocommit=True) as connection:
        connection.execute("alter system set synchronous_standby_names = 'nobody'")
        connection.execute("select pg_reload_conf()")
        until(lambda: database.value("show synchronous_standby_names") == "nobody")
        for _ in range(2):
            connection.execute("checkpoint")  # it is the checkpointer that makes commits wait, once it has the setting
        try:
            yield
        finally:
            connection.execute("alter system reset synchronous_standby_names")
            connection.execute("select pg_reload_conf()")


@pytest.mark.parametrize("how", ["altered", "truncated"])
def test_nothing_is_bound_before_it_is_visible(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The stream has a transaction as soon as it is on the primary's disk. A look before others see it would find the
    definitions of before."""
    database.run("drop publication everything", "create publication everything for all tables")
    statements = {
        "altered": ("alter table other alter id type int using id * 100", "insert into other values (2)"),
        "truncated": ("truncate other",),
    }[how]
    database.run("insert into other values (1)")
    spec = database.spec(OTHER)
    with ingesting(tmp_path, spec) as one, ThreadPoolExecutor(1) as pool:
        tick(one, 1000)
        with without_standby(database), monkeypatch.context() as patch:
            patch.setattr(watch, "VISIBLE_SECONDS", 0.5)
            committed = pool.submit(database.run, *statements)
            until(lambda: database.value("select max(wait_event) from pg_stat_activity where wait_event = 'SyncRep'"))
            with pytest.raises(SourceNotReady, match="is not visible upstream"):
                tick(one, 1100)
        committed.result()
    assert rows(tmp_path, "other") == Counter([(1,)])
    with ingesting(tmp_path, spec) as one:
        tick(one, 1200)
        stopped = [text.split(":")[0] for text in source_of(one).stop_reasons().values()]
    assert stopped == (["ColumnChanged"] if how == "altered" else [])
    assert rows(tmp_path, "other") == (Counter([(1,)]) if how == "altered" else Counter())


def test_a_partition_for_a_while_whose_changes_were_its_parents(database: Database, tmp_path: Path) -> None:
    """With publish_via_partition_root."""
    database.run(
        "create table p (like t) partition by list (id)",
        "drop publication everything",
        "create publication everything for table t, p, other with (publish_via_partition_root = true)",
    )
    with ingesting(tmp_path, database.spec(T, OTHER)) as one:
        tick(one, 1000)
        database.run("alter table p attach partition t default")
        database.run(INSERT)
        database.run("alter table p detach partition t")
        tick(one, 1100)
        assert source_of(one).stop_reasons()["t"].startswith("NotPublished: table t: column ")


class Published(NamedTuple):
    """Statements that publish `t` without naming it; statements, each a transaction of its own, by which `t` is changed
    while it is not published, and is then published as before."""

    by: tuple[str, ...]
    meanwhile: tuple[str, ...]


PUBLISHED = {
    "its schema": Published(
        ("drop publication everything", "create publication everything for tables in schema public"),
        (
            "create schema elsewhere; alter table t set schema elsewhere",
            f"set local search_path to elsewhere, public; {INSERT}",
            "alter table elsewhere.t set schema public",
        ),
    ),
    "its parent": Published(
        (
            "drop publication everything",
            "create table p (like t) partition by list (id)",
            "alter table p attach partition t default",
            "create publication everything for table p, other",
        ),
        ("alter table p detach partition t", INSERT, "alter table p attach partition t default"),
    ),
}


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("by", PUBLISHED)
def test_a_table_that_is_published_by_another_object(database: Database, tmp_path: Path, by: str, leaves: bool) -> None:
    """The changes of `t` while it was in another schema, or detached from its parent, were not sent."""
    database.run(*PUBLISHED[by].by)
    with ingesting(tmp_path, database.spec(T, OTHER)) as one:
        tick(one, 1000)
        for statement in PUBLISHED[by].meanwhile if leaves else ():
            database.run(statement)
        database.run(INSERT, "insert into other values (1)")
        tick(one, 1100)
        stopped = source_of(one).stop_reasons()
    assert ("NotPublished: table t: the publication lost the table" in stopped.get("t", "")) is leaves
    assert rows(tmp_path, "t").total() == (1 if leaves else 2)
    assert rows(tmp_path, "other") == Counter([(1,)])


@pytest.mark.parametrize("on_gap", ["stop", "resnapshot"])
@pytest.mark.parametrize("back", [True, False])
def test_a_dropped_publication_is_a_gap(database: Database, tmp_path: Path, on_gap: str, back: bool) -> None:
    """The server sends nothing past the moment at which there was none: `publication "everything" does not exist`."""
    with ingesting(tmp_path, database.spec(T, OTHER, on_gap=on_gap)) as one:
        tick(one, 1000)
        database.run("drop publication everything")
        database.run(INSERT)
        if back:
            database.run("create publication everything for table t, other")
        database.run("insert into other values (1)")
        if on_gap == "resnapshot" and not back:
            with pytest.raises(SourceUnusable, match="there is no publication everything; run CREATE PUBLICATION"):
                tick(one, 1100)
            database.run("create publication everything for table t, other")
        tick(one, 1100)
        stopped = {name: text.split(": ")[0] for name, text in source_of(one).stop_reasons().items()}
    assert stopped == ({} if on_gap == "resnapshot" else {"t": "NotPublished", "other": "NotPublished"})
    assert rows(tmp_path, "other") == (Counter([(1,)]) if on_gap == "resnapshot" else Counter())
    assert rows(tmp_path, "t").total() == (2 if on_gap == "resnapshot" else 1)


def test_a_database_whose_texts_have_no_encoding_is_refused(database: Database) -> None:
    with connect(database.server, "postgres", autocommit=True) as connection:
        connection.execute("create database bytes encoding 'SQL_ASCII' locale 'C' template template0")
    other = Database(database.server, "bytes")
    other.run(SCHEMA, "create publication everything for table t")
    with pytest.raises(SourceUnusable, match="encoding SQL_ASCII is not read"):
        other.spec(T)


@pytest.mark.parametrize("type", ["regclass", "regrole[]", "aclitem"])
def test_values_that_are_printed_by_names_are_refused(database: Database, type: str) -> None:
    """Also in arrays and composite types."""
    database.run(f"create type pair as (a int, b {type})", "alter table other add value pair")
    with pytest.raises(SourceUnusable, match=r"table other: TypeNotSupported: type .* is printed differently"):
        database.spec(OTHER)
