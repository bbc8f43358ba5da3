"""Vacuum deletes unreferenced files and no others, beside readers and writers."""

from __future__ import annotations

import time

import pytest

from tests.persist.maintenance.test_maintenance import NO_WAIT, data_files, fill, live_files, open_at, run_all
from tests.persist.model import batch, contents
from tests.s3_fixtures import Place
from tidemark_persist import MaintenancePolicy, read_part, write_staged
from tidemark_persist.maintenance import maintenance, vacuum
from tidemark_persist.maintenance.maintenance import Vacuum
from tidemark_persist.maintenance.vacuum import read_mark


class Clock:
    """Says what a test wants."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now

    monotonic = time


def test_vacuum_deletes_files_removed_a_grace_period_ago(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marked in one round, swept in the next, and never while the grace lasts."""
    clock = Clock()
    for module in (maintenance, vacuum):
        monkeypatch.setattr(module, "time", clock)
    shard = open_at(place, MaintenancePolicy(compact_runs=4, vacuum_grace_seconds=10.0))
    fill(shard, 4)
    run_all(shard)  # compacts, and marks the four
    old = data_files(place) - live_files(shard)
    assert len(old) == 4
    for _ in range(2):
        clock.now += 4.9
        run_all(shard)
        assert old <= data_files(place)

    clock.now += 5.0
    assert any(isinstance(work, Vacuum) for work in shard.maintenance_due())
    run_all(shard)
    assert data_files(place) == live_files(shard)


def test_vacuum_waits_for_leases_of_older_versions_only(place: Place) -> None:
    """Files of a leased version stay readable; the release lets it go."""
    shard, reader = open_at(place, NO_WAIT), open_at(place, NO_WAIT)
    fill(shard, 4)
    with reader.lease():
        parts = reader.snapshot_parts(3)
        run_all(shard)
        run_all(shard)
        assert {part.path for part in parts} <= data_files(place)
        assert sum(piece.num_rows for part in parts for piece in read_part(part)) == 7
    with reader.lease():  # of a version after the compaction: in nobody's way
        run_all(shard)
        assert data_files(place) == live_files(shard)


def test_vacuum_leaves_files_that_a_writer_may_still_commit(place: Place) -> None:
    """A staged file nobody refers to is garbage only when it is old."""
    shard = open_at(place, MaintenancePolicy(vacuum_grace_seconds=0.0))
    file = write_staged(shard.location, batch([(("a", 1), 0, 1)]))
    assert file is not None
    for _ in range(3):
        run_all(shard)
    shard.compare_and_append([file], expected_upper=0, new_upper=1, term=1)
    assert contents(shard.snapshot(0)) == {("a", 1): 1}

    crashed = write_staged(shard.location, batch([(("b", 1), 1, 1)]))
    assert crashed is not None
    impatient = open_at(place, NO_WAIT)
    run_all(impatient)
    mark = read_mark(impatient._log.storage)
    assert mark is not None
    assert mark.paths == (crashed.path,)
    run_all(impatient)
    assert data_files(place) == {file.path}


def test_vacuum_spares_a_marked_file_that_was_committed_after_all(place: Place) -> None:
    """Between the mark and the sweep the slow writer came."""
    shard = open_at(place, NO_WAIT)
    file = write_staged(shard.location, batch([(("a", 1), 0, 1)]))
    assert file is not None
    run_all(shard)
    mark = read_mark(shard._log.storage)
    assert mark is not None
    assert mark.paths == (file.path,)

    shard.compare_and_append([file], expected_upper=0, new_upper=1, term=1)
    run_all(shard)
    assert contents(shard.snapshot(0)) == {("a", 1): 1}
