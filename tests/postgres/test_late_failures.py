"""Tables that begin while others go on, where something fails, takes long, or is left by a process before: the others
do not wait, upstream keeps nothing unnoticed, and no files are left."""

from __future__ import annotations

import threading
import time as clock
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.postgres.databases import CREDENTIALS, Database, source_of, tick, tick_until_begun
from tests.postgres.test_late_tables import (
    LOCKED,
    _read_everything,
    _stop,
    _ticked,
    _ticked_rows,
    added,
    held_copies,
    late_of,
)
from tests.postgres.test_stops import A, B, ingesting, rows, upper
from tests.waiting import until
from tidemark_persist import StagedFile, read_part
from tidemark_protocol.plan.ingestion import PostgresTable
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.postgres import late_tables, watch
from tidemark_replica.storage.postgres import source as source_module
from tidemark_replica.storage.postgres.connection import SETTINGS, Upstream
from tidemark_replica.storage.postgres.contents import copied_tables
from tidemark_replica.storage.postgres.contents.snapshot import Snapshot
from tidemark_replica.storage.postgres.keyed.rows import KeyedRows
from tidemark_replica.storage.postgres.late_tables import LateTables, ReadyTables

ODD = PostgresTable("odd", "public", "Odd Name", ("The Key",))
HELD_S = 30.0
"""The others are to go on although something is held so long."""

pytestmark = [pytest.mark.postgres, pytest.mark.broad]


def files_of(root: Path, table: str) -> list[Path]:
    return [file for file in (root / table).rglob("*.parquet") if "_delta_log" not in file.parts]


@pytest.mark.parametrize("moment", ["before it was near", "after it was near"])
def test_others_go_on_while_rows_are_read_to_be_found_by_key(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The first update of a table reads all its rows, which may take an hour."""
    monkeypatch.setattr(late_tables, "WAIT_S", 0.05)
    database.run("alter table a add primary key (id)", "alter table a replica identity default")
    go_on, opening, opened = threading.Event(), threading.Event(), KeyedRows.opened

    def open_later(self: KeyedRows, *args: Any) -> KeyedRows:
        opening.set()
        go_on.wait()
        return opened(self, *args)

    monkeypatch.setattr(KeyedRows, "opened", open_later)
    timer = threading.Timer(HELD_S, go_on.set)
    with added(database, tmp_path) as one, held_copies(monkeypatch) as copy:
        tick(one, 1100)
        late = late_of(one)
        if moment == "before it was near":
            until(lambda: bool(database.value(LOCKED)))
            database.run("update a set part = 'y' where id = 1")
            copy()
        else:
            copy()
            until(lambda: late.is_waiting)
            database.run("update a set part = 'y' where id = 1")
            _read_everything(database, late)
        timer.start()
        try:
            until(lambda: _ticked(one, 1100) and opening.is_set())
            database.run("insert into b values (2)")
            until(lambda: _ticked_rows(one, tmp_path, "b") == 2)
            assert not go_on.is_set()
            assert upper(tmp_path, "a") == 0
        finally:
            timer.cancel()
            go_on.set()
        tick_until_begun(one, 20_000)
        assert not source_of(one).stop_reasons()
    assert rows(tmp_path, "a") == Counter([(1, "y")])


def test_the_others_stream_is_answered_while_a_difference_gets_its_time(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends a stream that gives no sign of life: the table would be copied again, and end the same way."""
    monkeypatch.setattr(late_tables, "WAIT_S", 0.5)
    monkeypatch.setattr(source_module, "ALIVE_SECONDS", 0.2)
    database.run("insert into a values (1, 'x')", "insert into b values (1)")
    with ingesting(tmp_path, database.spec(A, B, on_gap="resnapshot")) as one:
        tick(one, 1000)
        _stop(database, one, "a")
        database.run("insert into a select g, 'y' from generate_series(2, 15) g")
        read = read_part

        def read_slowly(*args: Any, **options: Any) -> Iterator[Any]:
            for batch in read(*args, **options):
                for row in range(batch.num_rows):
                    sleep(0.5)
                    yield batch.slice(row, 1)

        monkeypatch.setattr(copied_tables, "read_part", read_slowly)
        source_of(one)._disconnect()
        with monkeypatch.context() as short:
            short.setitem(SETTINGS, "wal_sender_timeout", "3s")
            tick(one, 4000)
        source_of(one)._due["a"] = 0.0
        tick_until_begun(one, 4100)
        assert not source_of(one).stop_reasons()
    assert sum(rows(tmp_path, "a").values()) == 16


@pytest.mark.parametrize("moment", ["before it is near", "as it joins"])
def test_a_table_that_cannot_begin_waits_as_long_as_it_took(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its contents are copied again only then."""
    with added(database, tmp_path, max_transaction_bytes=10_000) as one, held_copies(monkeypatch) as copy:
        tick(one, 1100)
        late = late_of(one)
        late.began_at -= 1000
        until(lambda: bool(database.value(LOCKED)))
        if moment == "before it is near":
            database.run("insert into a select g, repeat('x', 1000) from generate_series(1, 100) g")
            copy()
        else:
            copy()
            until(lambda: late.is_waiting)
            database.run("alter table a alter part type text using part || '!'")
        until(lambda: _ticked(one, 1100) and "a" in source_of(one).stop_reasons())
        assert source_of(one)._due["a"] > clock.monotonic() + 900


def test_the_wal_that_a_copy_keeps_is_shown(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(watch, "WARN_BYTES", 1 << 20)
    with added(database, tmp_path) as one, held_copies(monkeypatch) as copy:
        tick(one, 1100)
        until(lambda: bool(database.value(LOCKED)))
        source, kept = source_of(one), f"WalKept: replication slot {source_of(one)._slot}_new keeps "

        def warns() -> bool:
            database.run("insert into b values (1)", "select pg_logical_emit_message(false, 'x', repeat('y', 1000000))")
            database.run("checkpoint")
            return _ticked(one, 1100) and source.warning().startswith(kept)

        until(warns)
        behind = source.counters()["walBytesBehind"]
        assert behind > 1 << 20
        assert {report.behind for report in source.progress().values()} == {behind}
        copy()
        tick_until_begun(one, 100_000)
        until(lambda: _ticked(one, 100_000) and "_new" not in source.warning())


def test_the_slot_of_a_copy_whose_machine_is_gone_is_ended(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would notice it only after a while."""
    monkeypatch.setattr(late_tables, "SLOT_TRIES", 2)
    monkeypatch.setattr(late_tables, "SLOT_PAUSE_S", 0.05)
    with added(database, tmp_path) as one:
        gone = Upstream(database.spec(B), lambda: CREDENTIALS).replicate()
        gone.create_slot(f"{source_of(one)._slot}_new", temporary=True)
        tick_until_begun(one, 1100)
        gone.close()
        assert not source_of(one).stop_reasons()
    assert rows(tmp_path, "a") == Counter([(1, "x")])


def test_no_files_are_left_of_a_copy_that_fails(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, copied = Snapshot._copy, threading.Event()

    def fail(self: Snapshot, *args: Any) -> Any:
        if args[0].table.name == "odd":
            assert copied.wait(60)
            raise IngestionError("the server is away")
        file = copy(self, *args)
        if files_of(tmp_path, "a"):
            copied.set()
        return file

    monkeypatch.setattr(Snapshot, "_copy", fail)
    with added(database, tmp_path, ODD) as one:
        tick(one, 1100)
        until(lambda: _ticked(one, 1100) and "a" in source_of(one).stop_reasons())
        assert source_of(one).stop_reasons()["a"] == "SnapshotFailed: table a: the server is away"
        assert copied.is_set()
        assert files_of(tmp_path, "a") == []


def test_no_files_are_left_of_a_table_whose_first_tick_fails(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with added(database, tmp_path) as one:
        tick(one, 1100)
        until(lambda: late_of(one).is_waiting)
        assert len(files_of(tmp_path, "a")) == 1

        def fail(*args: Any) -> Any:
            raise IngestionError("the server is away")

        monkeypatch.setattr(source_of(one), "_checked", fail)
        with pytest.raises(IngestionError, match="the server is away"):
            until(lambda: not _ticked(one, 1200))
        assert source_of(one)._late is None
        assert files_of(tmp_path, "a") == []


def test_late_tables_do_not_join_where_the_others_have_passed(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes between would be lost. The others go on."""
    read = LateTables._read

    def read_less(self: LateTables, *args: Any) -> int:
        read(self, *args)
        return 1

    monkeypatch.setattr(LateTables, "_read", read_less)
    with added(database, tmp_path) as one:
        tick(one, 1100)
        until(lambda: _ticked(one, 1100) and "a" in source_of(one).stop_reasons())
        assert (
            source_of(one)
            .stop_reasons()["a"]
            .startswith("SnapshotFailed: table a: it is at 0/1, which the other tables")
        )
        assert (upper(tmp_path, "a"), files_of(tmp_path, "a")) == (0, [])
        database.run("insert into b values (2)")
        until(lambda: _ticked_rows(one, tmp_path, "b") == 2)


@pytest.mark.parametrize("moment", ["before it is near", "after it was near"])
def test_old_files_are_written_again_before_the_others_have_to(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The binding would do it in the tick of the others, for hours."""

    def aged(file: StagedFile | None) -> StagedFile | None:
        return file and replace(file, staged_ms=file.staged_ms - 5 * 3600 * 1000)

    copy, ready = Snapshot._copy, LateTables.hand_over
    found: list[ReadyTables] = []

    def copy_before_hours(self: Snapshot, *args: Any) -> tuple[StagedFile | None, int]:
        file, malformed = copy(self, *args)
        return aged(file), malformed

    def ready_then_keep(self: LateTables, *args: Any) -> ReadyTables | None:
        tables = ready(self, *args)
        found.extend([] if tables is None else [tables])
        return tables

    if moment == "before it is near":
        monkeypatch.setattr(Snapshot, "_copy", copy_before_hours)
    monkeypatch.setattr(LateTables, "hand_over", ready_then_keep)
    with added(database, tmp_path) as one:
        tick(one, 1100)
        if moment == "after it was near":
            late = late_of(one)
            until(lambda: late.is_waiting)
            (old,) = late._changes["a"].files
            late._changes["a"].files[:] = [replace(old, staged_ms=old.staged_ms - 5 * 3600 * 1000)]
        tick_until_begun(one, 1200)
    (tables,) = found
    assert all(file.staged_ms > (clock.time() - 3600) * 1000 for file in tables.staged["a"])
    assert len(files_of(tmp_path, "a")) == 1
    assert rows(tmp_path, "a") == Counter([(1, "x")])
