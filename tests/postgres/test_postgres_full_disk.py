"""The disk of the tables is full while a PostgreSQL database is ingested."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.disk_fixtures import PAGE, fill
from tests.postgres.databases import (
    Database,
    connect,
    ingester,
    read_everything,
    source_of,
    tick,
    tick_until_followed,
)
from tests.postgres.test_stops import rows
from tests.storage.full_disk import (
    BATCH,
    ROOMS_AND_BEGIN,
    batches,
    check_that_a_full_disk_is_told,
    numbers,
    unnamed_files,
)
from tests.storage.ingestion_samples import oks
from tidemark_protocol.plan.ingestion import PostgresTable
from tidemark_replica.storage.postgres import source as module
from tidemark_replica.storage.postgres.contents import copied_tables

T = PostgresTable("t", "public", "t")
B = PostgresTable("b", "public", "b", ("k",))

pytestmark = [pytest.mark.postgres, pytest.mark.broad]


@pytest.fixture(autouse=True)
def ticks_read_everything(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    read_everything(database, monkeypatch)


class OfPostgres:
    """A table with one transaction for each batch."""

    table, is_whole = "t", True

    def __init__(self, database: Database, disk: Path) -> None:
        self.database, self.shards, self.now = database, disk, 1000
        database.run("create table t (id bigint primary key)")
        self.more(0)
        self.spec = database.spec(T)
        self.one = ingester(disk, self.spec)
        self.one.recover()

    def more(self, batch: int) -> None:
        with (
            connect(self.database.server, self.database.name) as connection,
            connection.cursor().copy("copy t from stdin") as copy,
        ):
            copy.write("".join(f"{n}\n" for n in numbers(batch)))

    def tick(self) -> None:
        self.now += 100
        tick(self.one, self.now)

    def catch_up(self) -> None:
        self.tick()

    def begin_again(self) -> None:
        source_of(self.one).close()
        self.one = ingester(self.shards, self.spec)
        self.one.recover()


@ROOMS_AND_BEGIN
def test_a_full_disk_is_told_and_with_room_each_row_is_there_once(
    database: Database, small_disk: Path, room: int, is_first: bool
) -> None:
    of = OfPostgres(database, small_disk)
    try:
        check_that_a_full_disk_is_told(of, room, is_first)
        assert len(oks(small_disk, "t")) == database.value("select count(*) from t")
    finally:
        source_of(of.one).close()


def test_a_table_whose_contents_find_no_room_holds_up_no_other(
    database: Database, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so by name, is tried again by itself, and leaves no file behind meanwhile."""
    monkeypatch.setattr(copied_tables, "GROUP_BYTES", 0)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    database.run("insert into b values (1)")
    of = OfPostgres(database, small_disk)
    source_of(of.one).close()
    of.more(1)
    of.spec = database.spec(T, B)
    of.one = ingester(small_disk, of.spec)
    of.one.recover()
    try:
        of.tick()
        assert source_of(of.one).unbound_tables() == ["t"]
        filler = fill(small_disk, 60 * PAGE)
        said = set[str]()
        for n in range(2, 8):
            database.run(f"insert into b values ({n})")
            of.tick()
            late = source_of(of.one)._late
            if late is not None:
                late._thread.join()
            said |= set(source_of(of.one).stop_reasons().values())
            assert rows(small_disk, "b") == Counter((k,) for k in range(1, n + 1))
        assert said, source_of(of.one)._late
        for text in said:  # each attempt writes another file
            assert text.startswith(f"SnapshotFailed: table t: StorageError: {small_disk}/t: ")
            assert text.endswith("No space left on device; make room on its disk, or enlarge its volume")
        assert unnamed_files(small_disk, "t", "b") == []
        filler.unlink()
        tick_until_followed(of.one, of.now + 100)
        of.now += 10_000
        assert batches(of) == 2
        of.more(2)
        of.tick()
        assert batches(of) == 3
        assert len(oks(small_disk, "t")) == database.value("select count(*) from t") == 3 * BATCH
    finally:
        source_of(of.one).close()
