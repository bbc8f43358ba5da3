"""A backup is put in the place of a view's table while no replica runs: the published table is made anew, and after any
other restart it is not."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.oracle.variants.in_process import without_jobs
from tests.replica.one_view import OneView
from tests.replica.plans import copies, shard
from tests.replica.tables import Row, Table
from tidemark_persist import StorageError, open_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.sinks.publish import PublishedView, published_location
from tidemark_replica.sinks.destinations import backup_check, publisher
from tidemark_replica.sinks.published.table_destination import TableDestination


class System:
    """A table, a view of it, and the table that the view is published as. A replica runs while the view moves."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.table, self.view = folder, Table(folder, "t"), shard("v", str(folder))
        location = published_location(str(folder), "shop", "flow", "view")
        self.published, self.lives = PublishedView(location, "shop.flow.view", 1, 24, False), 0

    def runs(self, upper: int, *updates: tuple[Row, int, int], as_of: int) -> None:
        """A new process, until view and published table have the rows at `upper`, which the table reaches now."""
        self.table.append(upper, *updates)
        plain = copies("d", as_of, source=self.table.metadata, view=self.view)
        (sink,) = plain.sink_exports
        of = replace(plain, sink_exports=(replace(sink, sink=replace(sink.sink, publish=self.published)),))
        self.lives += 1
        running = OneView(self.folder / str(self.lives), of)
        try:
            running.reach(Frontier.at(upper))
            running.loop.run_until(lambda: self.time() == upper - 1, running.driver.advance)
        finally:
            running.end()

    def time(self) -> int | None:
        """The time that the published table names; None where there is no such table."""
        if not (Path(self.published.location) / "_delta_log").exists():
            return None
        history: list[dict[str, Any]] = DeltaTable(self.published.location).history(1)
        return int(history[0]["tidemark.time"])

    def rows(self) -> Counter[Row]:
        table = DeltaTable(self.published.location)
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT n, s FROM t").read_all())
        return Counter(zip(found.column("n").to_pylist(), found.column("s").to_pylist(), strict=True))

    @property
    def contents_id(self) -> str:
        return open_shard(self.view.location).contents_id


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    monkeypatch.setattr(publisher, "TURN_SECONDS", 0.2)
    with without_jobs():
        made = System(tmp_path)
        made.runs(10, ((1, "a"), 3, 1), ((2, "b"), 5, 1), as_of=6)
        back_up(made)
        made.runs(20, ((5, "x"), 16, 1), as_of=9)
        yield made


def back_up(system: System) -> None:
    for name in ("t", "v"):
        shutil.copytree(system.folder / name, system.folder / "backup" / name)


def put_back(system: System) -> None:
    """Both tables: the source is read again from where it was then."""
    for name in ("t", "v"):
        shutil.rmtree(system.folder / name)
        shutil.copytree(system.folder / "backup" / name, system.folder / name)
    lost, system.table = system.table, Table(system.folder, "t")
    system.table.upper = system.table.shard.refresh().upper
    system.table.updates = [each for each in lost.updates if each[1] < system.table.upper]


def test_a_published_table_is_made_anew_where_a_backup_was_put_in_place_while_no_replica_ran(system: System) -> None:
    """Updates that come at a later time than before are there once."""
    put_back(system)
    system.runs(40, ((5, "x"), 35, 1), as_of=9)
    assert system.rows() == system.table.at(39)
    assert system.contents_id != "v"

    put_back(system)
    system.runs(50, ((5, "x"), 45, 1), as_of=9)
    assert system.rows() == system.table.at(49), "the contents of the backup have the first name again"


def test_any_other_restart_makes_nothing_anew(system: System) -> None:
    """Neither where the published table is as far as the view, nor where it is behind a backup."""
    system.runs(30, ((6, "y"), 25, 1), as_of=19)
    shutil.rmtree(system.folder / "backup")
    back_up(system)
    put_back(system)
    system.runs(40, ((7, "z"), 35, 1), as_of=29)
    assert system.rows() == system.table.at(39)
    assert system.contents_id == "v"


def test_a_destination_that_fails_at_first_is_asked_again(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server starts later than the replica."""
    failures = [StorageError("connection refused"), StorageError("starting")]
    progress_time = TableDestination.progress_time

    def late(self: TableDestination, contents: str) -> int | None:
        if failures:
            raise failures.pop()
        return progress_time(self, contents)

    monkeypatch.setattr(TableDestination, "progress_time", late)
    put_back(system)
    system.runs(40, ((5, "x"), 35, 1), as_of=9)
    assert system.rows() == system.table.at(39)
    assert system.contents_id != "v"


def test_handles_that_hear_of_one_time_take_the_same_name(system: System) -> None:
    """Each marks a backup once, and none where the table goes beyond the time."""
    one, other = open_shard(system.view.location), open_shard(system.view.location)
    upper = one.refresh().upper
    assert not one.mark_replaced("v", upper - 1)
    assert not one.mark_replaced("another", upper)
    assert one.mark_replaced("v", upper + 5)
    assert not one.mark_replaced("v", upper + 5)
    assert other.mark_replaced("v", upper + 5)
    assert one.contents_id == other.contents_id == f"v@{upper + 5}"


def test_a_destination_that_does_not_answer_keeps_the_view_waiting_for_a_bounded_time(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of it then."""
    looks, is_over = list[bool](), backup_check.BackupCheck.is_over

    def noted(self: backup_check.BackupCheck) -> bool:
        looks.append(is_over(self))
        return looks[-1]

    def never(self: TableDestination, contents: str) -> None:
        raise StorageError("no answer")

    monkeypatch.setattr(backup_check, "CHECK_SECONDS", 0.5)
    monkeypatch.setattr(TableDestination, "progress_time", never)
    monkeypatch.setattr(backup_check.BackupCheck, "is_over", noted)
    system.runs(30, ((6, "y"), 25, 1), as_of=19)
    assert (looks[0], looks[-1]) == (False, True)
    assert system.rows() == system.table.at(29)
