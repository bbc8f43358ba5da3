"""A table that cannot be followed stops by name, for good; new contents bring it back as a difference."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.postgres.databases import (
    Database,
    Keys,
    connect,
    ingested_rows,
    ingester,
    read_everything,
    source_of,
    tick,
    tick_until_begun,
)
from tidemark_persist import open_shard
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.postgres import late_tables
from tidemark_replica.storage.postgres import source as module
from tidemark_replica.storage.postgres.connection import Replication, Upstream
from tidemark_replica.storage.postgres.contents import copied_rows, snapshot
from tidemark_replica.storage.postgres.contents.snapshot import Snapshot

A = PostgresTable("a", "public", "a", ("id", "part"))
B = PostgresTable("b", "public", "b", ("k",))

pytestmark = [pytest.mark.postgres, pytest.mark.broad]


@pytest.fixture(autouse=True)
def ticks_read_everything(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick looks at the catalogue, and waits for what was written before it."""
    read_everything(database, monkeypatch)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)


@contextmanager
def ingesting(root: Path, spec: PostgresSource, keys: Mapping[str, Keys] | None = None) -> Iterator[Ingester]:
    """A process that goes on where another one was."""
    one = ingester(root, spec, keys=keys)
    try:
        one.recover()
        yield one
    finally:
        source_of(one).close()


def upper(root: Path, table: str) -> int:
    return int(open_shard(f"{root}/{table}").state().upper)


def rows(root: Path, table: str) -> Counter[Any]:
    return ingested_rows(root, table, upper(root, table) - 1)


def name_the_tables(database: Database) -> None:
    database.run("drop publication everything", "create publication everything for table a, b")


STOPS: dict[str, tuple[str, Callable[[Database], None]]] = {
    "dropped": ("TableMissing", lambda d: d.run("drop table a")),
    "renamed": ("TableMissing", lambda d: d.run("alter table a rename to c")),
    "made anew": (
        "TableMissing",
        lambda d: d.run(
            "drop table a",
            "create table a (id int, part text)",
            "alter table a replica identity full",
            "alter publication everything add table a",
        ),
    ),
    "column dropped": ("ColumnChanged", lambda d: d.run("alter table a drop part")),
    "column renamed": ("ColumnChanged", lambda d: d.run("alter table a rename part to c")),
    "column retyped": ("ColumnChanged", lambda d: d.run("alter table a alter id type bigint", "delete from a")),
    "column back": ("ColumnChanged", lambda d: d.run("alter table a drop part", "alter table a add part text")),
    "values altered": ("ColumnChanged", lambda d: d.run("alter table a alter id type int using id + 1")),
    "identity": ("ReplicaIdentity", lambda d: d.run("alter table a replica identity nothing")),
    "not published": ("NotPublished", lambda d: d.run("alter publication everything drop table a")),
    "filtered": (
        "NotPublished",
        lambda d: d.run("alter publication everything set table a where (id > 1), b"),
    ),
}


@pytest.mark.parametrize("change", STOPS)
def test_what_cannot_be_followed_stops_one_table(database: Database, tmp_path: Path, change: str) -> None:
    """The other one goes on; a process that comes later knows it, too."""
    reason, happens = STOPS[change]
    name_the_tables(database)
    database.run("insert into a values (1, 'x'), (2, 'y')", "insert into b values (1)")
    spec = database.spec(A, B)
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        database.run("insert into a values (3, 'z')")
        tick(one, 1100)
        happens(database)
        database.run("insert into b values (2)")
        tick(one, 1200)
        tick(one, 1300)
        assert source_of(one).stop_reasons()["a"].startswith(f"{reason}: table a: ")
        assert list(source_of(one).stop_reasons()) == ["a"]
    with ingesting(tmp_path, spec) as one:
        database.run("insert into b values (3)")
        tick(one, 1400)
        assert source_of(one).stop_reasons()["a"].startswith(f"{reason}: table a: ")
    assert rows(tmp_path, "a") == Counter([(1, "x"), (2, "y"), (3, "z")])
    assert rows(tmp_path, "b") == Counter([(1,), (2,), (3,)])
    assert upper(tmp_path, "a") < 1400 < upper(tmp_path, "b")


def test_what_changes_no_row_stops_nothing(database: Database, tmp_path: Path) -> None:
    """A definition that changes without the rows, rows that are written anew as they are, and other columns."""
    name_the_tables(database)
    database.run("insert into a values (1, 'x')")
    spec = database.spec(A, B)
    harmless = (
        "alter table a alter id set not null",
        "vacuum full a",
        "alter table a alter part set statistics 50",
        "alter table a add more text default random()::text",
        "alter table a drop note",
        "create index on a (id)",
    )
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        for number, statement in enumerate(harmless):
            with connect(database.server, database.name, autocommit=True) as connection:
                connection.execute(statement)
            tick(one, 1100 + 200 * number)
            database.run("update a set id = id + 1")
            tick(one, 1200 + 200 * number)
            assert not source_of(one).stop_reasons(), statement
    assert rows(tmp_path, "a") == Counter([(1 + len(harmless), "x")])


def test_new_contents_come_as_a_difference_beside_tables_that_go_on(database: Database, tmp_path: Path) -> None:
    """All changes that the stopped table missed are there at one time, at the position that the others have."""
    database.run("insert into a values (1, 'x'), (2, 'y')")
    spec = database.spec(A, B, on_gap="resnapshot")
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        database.run("alter table a rename part to c")
        database.run("insert into a values (3, 'z')", "insert into b values (1)")
        tick(one, 1100)
        assert list(source_of(one).stop_reasons()) == ["a"]
    with ingesting(tmp_path, spec) as one:
        tick(one, 1200)
        assert list(source_of(one).stop_reasons()) == ["a"]
    database.run("alter table a rename c to part", "delete from a where id = 1", "insert into b values (2)")
    with ingesting(tmp_path, spec) as one:
        begun = tick_until_begun(one, 1300)
        assert not source_of(one).stop_reasons()
        database.run("update a set part = 'w' where id = 2", "insert into b values (3)")
        tick(one, 8000)
        tick(one, 8100)
    assert ingested_rows(tmp_path, "a", begun - 1) == Counter([(1, "x"), (2, "y")])
    assert ingested_rows(tmp_path, "a", begun) == Counter([(2, "y"), (3, "z")])
    assert ingested_rows(tmp_path, "b", begun) == Counter([(1,), (2,)])
    assert rows(tmp_path, "a") == Counter([(2, "w"), (3, "z")])
    assert rows(tmp_path, "b") == Counter([(1,), (2,), (3,)])


def test_a_table_that_cannot_begin_is_held_and_begins_later(database: Database, tmp_path: Path) -> None:
    """Its upper stays at 0, so no query reads it while it is empty; the other table begins without it."""
    database.run("insert into a values (1, 'x')", "insert into b values (1)")
    spec = database.spec(A, B)
    database.run("alter table a replica identity default")
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        tick(one, 1100)
        assert source_of(one).stop_reasons()["a"].startswith("ReplicaIdentity: ")
    assert (upper(tmp_path, "a"), rows(tmp_path, "b")) == (0, Counter([(1,)]))
    database.run("alter table a replica identity full")
    with ingesting(tmp_path, spec) as one:
        tick_until_begun(one, 1200)
        assert not source_of(one).stop_reasons()
    assert rows(tmp_path, "a") == Counter([(1, "x")])


def test_a_transaction_that_is_too_large_stops_the_tables_that_it_changes(database: Database, tmp_path: Path) -> None:
    """The tables take no part of it; they take a smaller transaction of the same tick."""
    spec = database.spec(A, B, max_transaction_bytes=1 << 20)
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        database.run("insert into b values (1)")
        database.run("insert into a select g, repeat('x', 100) from generate_series(1, 20000) g")
        tick(one, 1100)
        assert source_of(one).stop_reasons()["a"].startswith("TransactionTooLarge: table a: ")
    assert rows(tmp_path, "b") == Counter([(1,)])
    assert not rows(tmp_path, "a")


@pytest.mark.parametrize("on_gap", ["stop", "resnapshot"])
def test_a_lost_slot_stops_all_tables_or_they_begin_anew(database: Database, tmp_path: Path, on_gap: str) -> None:
    """Dropped, and made anew by somebody at a later position: the same name says nothing."""
    database.run("insert into a values (1, 'x'), (2, 'y')", "insert into b values (1)")
    spec = database.spec(A, B, on_gap=on_gap)
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        slot = source_of(one)._slot
    database.drop_slot(slot)
    database.run("delete from a where id = 1")
    with ingesting(tmp_path, spec) as one:
        database.value(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        database.run("insert into b values (2)")
        tick(one, 1100)
        stopped = source_of(one).stop_reasons()
    if on_gap == "stop":
        assert len([text for text in stopped.values() if text.startswith("SlotLost: table ")]) == 2
        assert (upper(tmp_path, "a"), rows(tmp_path, "b")) == (1001, Counter([(1,)]))
    else:
        assert not stopped
        assert rows(tmp_path, "a") == Counter([(2, "y")])
        assert rows(tmp_path, "b") == Counter([(1,), (2,)])


def test_a_gap_stops_a_table_that_never_began_too(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reason, its DataSource would say nothing. Until the next start, the source asks upstream no more."""
    with ingesting(tmp_path, database.spec(A)) as one:
        tick(one, 1000)
        slot = source_of(one)._slot
    database.drop_slot(slot)
    monkeypatch.setattr(Snapshot, "copy", lambda *_: pytest.fail("copies contents that nothing can follow"))
    with ingesting(tmp_path, database.spec(A, B)) as one:
        tick(one, 1100)
        assert {name: text.split(":")[0] for name, text in source_of(one).stop_reasons().items()} == {
            "a": "SlotLost",
            "b": "SlotLost",
        }
        monkeypatch.setattr(Upstream, "replicate", lambda self: pytest.fail("connects again"))
        monkeypatch.setattr(Upstream, "connect", lambda self: pytest.fail("connects again"))
        tick(one, 1200)
    assert upper(tmp_path, "b") == 0


def test_another_database_cluster_is_another_upstream(database: Database, tmp_path: Path) -> None:
    """The system identifier is pinned."""
    spec = database.spec(B)
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        positions = source_of(one)._bindings.positions
        positions[("", "system")] = positions[("", "system")].replace('"id": "', '"id": "9')
        source_of(one).close()
        tick(one, 1100)
        assert source_of(one).stop_reasons()["b"].startswith("UpstreamReplaced: table b: ")


def test_a_server_restored_from_an_earlier_disk_is_another_upstream(database: Database, tmp_path: Path) -> None:
    """Same cluster, same timeline, same slot: its WAL ends before the position that was read. Nothing is confirmed."""
    spec = database.spec(B)
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        slot = source_of(one)._slot
        source_of(one)._bindings.positions[("", "lsn")] = "FFFF/0"
        source_of(one).close()
        confirmed = f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{slot}'"
        before = database.value(confirmed)
        tick(one, 1100)
        assert source_of(one).stop_reasons()["b"].startswith("UpstreamReplaced: table b: the server's WAL ends at ")
    assert database.value(confirmed) == before


@pytest.mark.parametrize("other", ["none", "begins", "was followed"])
def test_a_table_that_cannot_begin_is_not_tried_at_each_tick(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Each try makes a slot upstream and copies contents. The next start of the source tries it at once."""
    create, slots = Replication.create_slot, list[str]()

    def create_slot(self: Replication, name: str, temporary: bool = False) -> tuple[int, str]:
        slots.append(name)
        return create(self, name, temporary)

    monkeypatch.setattr(Replication, "create_slot", create_slot)
    database.run("insert into a values (1, 'x')")
    spec = database.spec(A, *([B] if other == "begins" else []), on_gap="resnapshot")
    if other == "was followed":
        with ingesting(tmp_path, spec) as one:
            tick(one, 1000)
        database.drop_slot(slots.pop())
    database.run("alter table a replica identity default")
    with ingesting(tmp_path, spec) as one:
        for time in (1100, 1200, 1300):
            tick(one, time)
            assert source_of(one).stop_reasons()["a"].startswith("ReplicaIdentity: table a: ")
    assert len(slots) == 1
    database.run("alter table a replica identity full", "insert into a values (2, 'y')")
    with ingesting(tmp_path, spec) as one:
        tick_until_begun(one, 1400)
        assert not source_of(one).stop_reasons()
    assert rows(tmp_path, "a") == Counter([(1, "x"), (2, "y")])


@pytest.mark.parametrize(("length", "reason"), [(200, ""), (2000, "RowTooLarge")])
def test_a_row_that_is_longer_than_a_block(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, reason: str
) -> None:
    """A block has whole rows, however long; one with more than is allowed stops its table alone."""
    monkeypatch.setattr(copied_rows, "BLOCK_BYTES", 64)
    monkeypatch.setattr(copied_rows, "ROW_BYTES_MAX", 512)
    database.run(f"insert into a values (1, 'x'), (2, repeat('y', {length}))", "insert into b values (1)")
    with ingesting(tmp_path, database.spec(A, B)) as one:
        tick(one, 1000)
        stopped = {name: text.split(":")[0] for name, text in source_of(one).stop_reasons().items()}
        assert stopped == ({"a": reason} if reason else {})
    assert rows(tmp_path, "b") == Counter([(1,)])
    assert upper(tmp_path, "a") == (0 if reason else 1001)
    if not reason:
        assert rows(tmp_path, "a") == Counter([(1, "x"), (2, "y" * length)])


def test_a_late_snapshot_that_fails_holds_up_no_other_table(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a slot has its name already."""
    database.run("insert into a values (1, 'x')", "insert into b values (1)")
    spec = database.spec(A, B)
    database.run("alter table a replica identity default")
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        slot = source_of(one)._slot
    database.run("alter table a replica identity full", "insert into b values (2)")
    database.value(f"select pg_create_logical_replication_slot('{slot}_new', 'pgoutput')")
    monkeypatch.setattr(late_tables, "SLOT_TRIES", 1)
    with ingesting(tmp_path, spec) as one:
        tick_until_begun(one, 1100)
        assert source_of(one).stop_reasons()["a"].startswith("SnapshotFailed: table a: PostgreSQL ")
        assert list(source_of(one).stop_reasons()) == ["a"]
    assert (upper(tmp_path, "a"), rows(tmp_path, "b")) == (0, Counter([(1,), (2,)]))
    database.drop_slot(f"{slot}_new")
    with ingesting(tmp_path, spec) as one:
        tick_until_begun(one, 1200)
        assert not source_of(one).stop_reasons()
    assert rows(tmp_path, "a") == Counter([(1, "x")])


def test_a_table_is_tried_again_while_the_others_go_on(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the source itself: to begin all of it again would drop the rows by key of the others. Not at every tick."""
    create, slots = Replication.create_slot, list[str]()

    def create_slot(self: Replication, name: str, temporary: bool = False) -> tuple[int, str]:
        slots.append(name)
        return create(self, name, temporary)

    database.run("insert into a values (1, 'x')", "insert into b values (1)")
    with ingesting(tmp_path, database.spec(A, B, on_gap="resnapshot")) as one:
        tick(one, 1000)
        monkeypatch.setattr(Replication, "create_slot", create_slot)
        database.run("alter table a replica identity default", "insert into a values (2, 'y')")
        tick(one, 1100)
        source_of(one)._due["a"] = 0.0
        tick_until_begun(one, 1200)
        assert list(source_of(one).stop_reasons()) == ["a"]
        assert not source_of(one).retries()
        assert source_of(one)._due["a"] > time.monotonic()
        tick(one, 8000)
        assert len(slots) == 1
        database.run("alter table a replica identity full", "insert into b values (2)")
        source_of(one)._due["a"] = 0.0
        tick_until_begun(one, 8100)
        assert not source_of(one).stop_reasons()
        assert not source_of(one)._due
        assert len(slots) == 2
        assert rows(tmp_path, "a") == Counter([(1, "x"), (2, "y")])
        assert rows(tmp_path, "b") == Counter([(1,), (2,)])
    assert (module.pause_after(0), module.pause_after(60), module.pause_after(9999)) == (30, 60, 3600)


def test_no_range_is_copied_of_a_table_that_stopped(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is too large is found in the first of eight ranges."""
    copied, copy = list[str](), copied_rows.copied_blocks

    def copied_blocks(upstream: Any, connection: Any, query: Any) -> Iterator[bytes]:
        copied.append(query.as_string(connection))
        return copy(upstream, connection, query)

    monkeypatch.setattr(snapshot, "copied_blocks", copied_blocks)
    monkeypatch.setattr(snapshot, "COPIES", 1)
    monkeypatch.setattr(snapshot, "RANGE_PAGES_MIN", 1)
    monkeypatch.setattr(snapshot, "RANGE_PAGES", 1)
    monkeypatch.setattr(copied_rows, "ROW_BYTES_MAX", 100)
    database.run("insert into a select 1, repeat('y', 1000) from generate_series(1, 60) g", "insert into b values (1)")
    with ingesting(tmp_path, database.spec(A, B)) as one:
        tick(one, 1000)
        assert list(source_of(one).stop_reasons()) == ["a"]
    assert len([query for query in copied if '"a"' in query]) == 1
    assert rows(tmp_path, "b") == Counter([(1,)])
