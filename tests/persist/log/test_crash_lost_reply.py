"""Commits of unknown outcome: a retry with the same id ends in exactly one commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.persist.faults import Commit, Lost, inject, reply_lost, request_lost
from tests.persist.model import COLUMNS, batch, contents
from tests.s3_fixtures import Place
from tidemark_persist import (
    Appended,
    CommitForgotten,
    Fenced,
    IndeterminateCommit,
    MaintenancePolicy,
    Shard,
    StorageError,
    UpperMismatch,
    create_or_open,
)
from tidemark_persist.log.delta_log import DeltaLog
from tidemark_persist.maintenance.maintenance import Compact

ROWS = batch([(("a", 1), 3, 1)])


def open_at(place: Place, policy: MaintenancePolicy = MaintenancePolicy()) -> Shard:  # noqa: B008
    """A fresh handle: what a restarted process has."""
    return create_or_open(place.location, COLUMNS, shard_id="s", policy=policy)


def append(shard: Shard, commit_id: str | None = "c1") -> Appended | UpperMismatch:
    """The append under test."""
    return shard.compare_and_append(ROWS, expected_upper=0, new_upper=5, term=1, commit_id=commit_id)


def advance(shard: Shard, count: int) -> None:
    """Other appends, after the one under test."""
    for _ in range(count):
        upper = shard.refresh().upper
        assert isinstance(shard.compare_and_append(None, expected_upper=upper, new_upper=upper + 5, term=1), Appended)


@pytest.mark.parametrize("fault", [reply_lost, request_lost])
@pytest.mark.parametrize("commit_id", ["c1", None])
def test_crash_one_fault_is_resolved_inside(place: Place, fault: object, commit_id: str | None) -> None:
    """Landed or not, the log tells; the caller notices nothing."""
    shard = open_at(place)
    inject(shard, fault)  # type: ignore[arg-type]

    assert append(shard, commit_id) == Appended(5, 1)
    assert contents(open_at(place).snapshot(4)) == {("a", 1): 1}


def test_crash_network_stays_down_is_indeterminate_and_a_retry_finishes_it(place: Place) -> None:
    """Nothing was seen in the slot, so it may still land: the caller is told so, and comes again."""
    shard = open_at(place)
    inject(shard, *[request_lost] * 10)
    with pytest.raises(IndeterminateCommit) as unknown:
        append(shard, None)

    again = open_at(place)
    assert append(again, unknown.value.commit_id) == Appended(5, 1)
    assert contents(again.snapshot(4)) == {("a", 1): 1}


def test_crash_storage_gone_after_the_commit_is_indeterminate_not_a_failure(tmp_path: Path) -> None:
    """It landed, but not even the log can be read: the caller must not take it for "nothing was written"."""
    shard = open_at(Place(str(tmp_path / "shard"), tmp_path / "shard"))
    log = tmp_path / "shard" / "_delta_log"

    def land_and_vanish(commit: Commit) -> None:
        commit()
        log.rename(tmp_path / "elsewhere")
        log.write_text("not a folder")
        raise Lost("everything is gone")

    inject(shard, land_and_vanish)
    with pytest.raises(IndeterminateCommit) as unknown:
        append(shard)
    with pytest.raises(StorageError):
        shard.refresh()
    log.unlink()
    (tmp_path / "elsewhere").rename(log)

    assert append(shard, unknown.value.commit_id) == Appended(5, 1)
    assert contents(shard.snapshot(4)) == {("a", 1): 1}


def test_crash_delayed_commit_and_its_retry_take_one_slot(place: Place) -> None:
    """The first request is stuck in the network and arrives after the retry: only one of them lands."""
    shard, stuck = open_at(place), []

    def delayed(commit: Commit) -> None:
        stuck.append(commit)
        raise Lost("timeout")

    inject(shard, delayed)
    assert append(shard) == Appended(5, 1)
    with pytest.raises(Exception, match="commit"):
        stuck[0]()
    assert open_at(place).state().version == 1
    assert contents(open_at(place).snapshot(4)) == {("a", 1): 1}


def test_crash_before_the_reply_is_read_and_the_restarted_process_retries(place: Place) -> None:
    """A new process with the old commit id finds its commit, writes nothing, and goes on."""
    append(open_at(place))
    files = set(place.folder.rglob("*.parquet"))

    assert append(open_at(place)) == Appended(5, 1)
    assert set(place.folder.rglob("*.parquet")) == files


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("later", [1, 40])
def test_crash_retry_after_later_commits_still_finds_its_own(place: Place, later: int, reopened: bool) -> None:
    """By memory of the handle, or by walking the log: the append that left an upper is unique."""
    shard = open_at(place)
    append(shard)
    advance(open_at(place), later)

    shard = open_at(place) if reopened else shard
    assert append(shard) == Appended(5 + 5 * later, 1 + later)
    assert append(shard, "never landed") == UpperMismatch(5 + 5 * later)


def test_crash_retry_of_a_landed_commit_succeeds_also_when_fenced_since(place: Place) -> None:
    """It did land, whoever took over later; the next append learns of the fence."""
    shard = open_at(place)
    append(shard)
    open_at(place).fence(2)

    assert append(shard) == Appended(5, 2)
    with pytest.raises(Fenced):
        shard.compare_and_append(None, expected_upper=5, new_upper=9, term=1, commit_id="c2")


def test_crash_retry_when_the_log_has_forgotten_says_so(place: Place) -> None:
    """Past the log's retention nobody can know; that is its own error, never a guess."""
    shard = open_at(place, MaintenancePolicy(checkpoint_commits=2, log_retention_seconds=0))
    append(shard)
    advance(shard, 5)
    for work in shard.maintenance_due():
        shard.run_maintenance(work)
    advance(shard, 1)

    with pytest.raises(CommitForgotten, match="it is 35 now"):
        append(open_at(place))


def test_crash_lost_race_takes_its_file_away(place: Place) -> None:
    """A reply lost on a slot that another writer got is a plain mismatch, and leaves no orphan."""
    shard, rival = open_at(place), open_at(place)

    def overtaken(commit: Commit) -> None:
        rival.compare_and_append(None, expected_upper=0, new_upper=7, term=1)
        commit()

    inject(shard, overtaken)
    assert append(shard) == UpperMismatch(7)
    assert list(place.folder.glob("*.parquet")) == []


def test_crash_overtaken_by_a_commit_that_left_the_upper_alone_takes_the_next_version(place: Place) -> None:
    """Never silently rebased: the handle knows exactly which version is its own."""
    shard, rival = open_at(place), open_at(place, MaintenancePolicy(compact_runs=1))
    append(shard)
    [compact] = [work for work in refreshed(rival).maintenance_due() if isinstance(work, Compact)]

    def overtaken(commit: Commit) -> None:
        rival.run_maintenance(compact)
        commit()

    inject(shard, overtaken)
    rows = batch([(("a", 2), 6, 1)])
    assert shard.compare_and_append(rows, expected_upper=5, new_upper=9, term=1) == Appended(9, 3)
    assert open_at(place).state() == shard.state()
    assert contents(shard.snapshot(8)) == {("a", 1): 1, ("a", 2): 1}


@pytest.mark.parametrize("meanwhile", ["nothing", "another append", "a clean-up", "other settings", "a silent store"])
def test_crash_compaction_that_lands_after_its_slot_was_looked_at_keeps_its_files(
    place: Place, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """The request is stuck in the network, and arrives before the retry. The files of the compaction are live then."""
    policy = MaintenancePolicy(compact_runs=1, log_retention_seconds=0)
    shard, stuck, arrived = open_at(place, policy), [], []
    append(shard)
    [compact] = [work for work in shard.maintenance_due() if isinstance(work, Compact)]

    def delayed(commit: Commit) -> None:
        stuck.append(commit)
        raise Lost("timeout")

    def arrive(_: float) -> None:
        stuck.pop()()
        arrived.append(True)
        if meanwhile == "another append":
            advance(open_at(place), 1)
        if meanwhile == "a clean-up":  # of the log, with the entry in the slot
            other = open_at(place)
            advance(other, 2)
            other._log.checkpoint()
        if meanwhile == "other settings":
            shard._log._opened_with = "those before"
        if meanwhile == "a silent store":
            patch.setattr(DeltaLog, "follow", silent)

    def silent(log: DeltaLog) -> None:
        raise StorageError("no answer")

    inject(shard, delayed)
    with monkeypatch.context() as patch:
        patch.setattr("tidemark_persist.log.transact.time.sleep", arrive)
        shard.run_maintenance(compact)

    assert arrived
    (part,) = open_at(place).snapshot_parts(4)
    assert part.path not in {file.path for file in compact.files}
    assert contents(open_at(place).snapshot(4)) == {("a", 1): 1}
    advance(shard, 1)
    assert shard.state() == open_at(place).state()


def refreshed(shard: Shard) -> Shard:
    """The handle, having looked."""
    shard.refresh()
    return shard
