"""The sink of a refreshed view compacts its staged updates until the next refresh."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replica.refreshes.test_refreshed_sink import Refreshed, assert_refreshed
from tests.replica.sinks.test_crash_sink import Update, persisted
from tests.replica.worker_loop import Loop
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_replica.sinks.table import materialized_view, staged_compaction
from tidemark_replica.sinks.table.refresh_times import RefreshTimes
from tidemark_replica.sinks.table.shard_updates import consolidated


def test_staged_updates_of_the_next_refresh_are_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataflow that steps for another export's sake, too: what waits is about what changes at the refresh."""
    monkeypatch.setattr(materialized_view, "WAITING_ROWS", 16)
    updates = [(n, "x", time, 1 - 2 * (time % 2), None) for time in range(2, 60) for n in (7, 8, 9)]
    view = Refreshed(tmp_path / "r1", tmp_path / "shard", updates, 2, Loop())
    view.sink.allow_writes(WriterTerm(1))
    for inputs in range(4, 58, 2):
        view.step(inputs)
        view.reach(inputs)
        idle: Callable[[], bool] = lambda: view.sink._job is None and not view.sink.is_full  # noqa: E731
        view.loop.run_until(idle, lambda at=inputs: view.follow(at))
        assert len(list((tmp_path / "r1").iterdir())) <= 8

    assert_refreshed(tmp_path / "shard", updates, 56, 2)


class Yearly(Refreshed):
    """The next refresh is far."""

    refreshes = RefreshTimes(RefreshSchedule(every_ms=1_000_000))


def test_staged_updates_are_compacted_between_appends_of_the_upper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs move whenever the sink looks; the dataflow, which steps for another export's sake, goes on."""
    monkeypatch.setattr(materialized_view, "WAITING_ROWS", 16)
    updates = [(n, "x", time, 1 - 2 * (time % 2), None) for time in range(2, 100) for n in (7, 8, 9)]
    view = Yearly(tmp_path / "r1", tmp_path / "shard", updates, 2, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.reach(4)
    inputs = 4

    def tick() -> None:
        nonlocal inputs
        inputs += 1
        if not view.sink.is_full:
            view.step(inputs)
        view.follow(inputs)

    view.loop.run_until(lambda: view.frontier > 100, tick)
    view.reach(inputs)

    assert_refreshed(tmp_path / "shard", [u for u in updates if u[2] == 2], inputs, 2)


def test_staged_hydration_is_deleted_once_it_is_in_the_table(tmp_path: Path) -> None:
    """Not with the next refresh, though a little of the same step waits for that."""
    updates: list[Update] = [(n, "x", 0, 1, None) for n in range(5000)]
    updates += [(1, "y", 5, 1, None), (1, "z", 995_000, 1, None)]
    view = Yearly(tmp_path / "r1", tmp_path / "shard", updates, 3, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.reach(7)
    view.loop.run_until(lambda: view.sink._progress.waiting_rows == 1, lambda: view.follow(900))
    view.reach(900)

    assert sum(file.stat().st_size for file in (tmp_path / "r1").iterdir()) < 5000
    view.reach(1_000_001)
    for at, wanted in ((3, 5000), (999_999, 5000), (1_000_000, 5002)):
        assert persisted(tmp_path / "shard", at).total() == wanted
    assert list((tmp_path / "r1").iterdir()) == []


def test_a_failed_staged_compaction_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full in the midst of it, again and again: what was written is not to fill it for good."""
    failures: list[OSError] = []

    def full(*given: Any) -> Iterator[Any]:
        yield next(consolidated(*given))
        if len(failures) < 3:
            failures.append(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            raise failures[-1]

    monkeypatch.setattr(staged_compaction, "consolidated", full)
    updates: list[Update] = [(n, "x", 0, 1, None) for n in range(50)] + [(1, "y", 5, 1, None)]
    view = Yearly(tmp_path / "r1", tmp_path / "shard", updates, 3, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.reach(7)
    folded: Callable[[], bool] = lambda: view.sink._progress.waiting_rows == 1  # noqa: E731
    view.loop.run_until(folded, lambda: view.follow(900))

    assert len(failures) == 3
    assert len(list((tmp_path / "r1").iterdir())) == 1
