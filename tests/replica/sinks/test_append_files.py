"""Files of an append that the table does not hold are removed: an append may be retried or lost at every tick."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.replica.sinks.test_crash_sink import View, assert_exact, history
from tests.replica.worker_loop import Loop
from tidemark_persist import Shard, StagedFile, open_shard, write_staged
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.responses import Failure
from tidemark_replica.sinks.sink_progress import AppendAttempt
from tidemark_replica.sinks.table import materialized_view, shard_updates


def assert_no_file_is_left_over(location: Path) -> None:
    """Beside those that the shard consists of."""
    shard = open_shard(str(location))
    live = {part.path for part in shard.snapshot_parts(shard.state().upper - 1)}
    assert {path.name for path in location.glob("*.parquet")} == live


def _has_heard(view: View, upper: int) -> bool:
    """By a look at the shard, which may come before its own append has ended; or that it is fenced."""
    fenced = any(isinstance(response, Failure) for response in view.loop.said)
    return fenced or view.sink.write_frontier >= Frontier.at(upper)


@pytest.mark.parametrize("term", [1, 2], ids=["beaten", "fenced"])
def test_files_of_an_append_that_came_too_late_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, term: int
) -> None:
    """Replicas that compete write the same files at every tick, and one of them wins: a day of what the others wrote
    would be as large as the table."""
    updates = history(6, 20)
    late = View(tmp_path / "late", tmp_path / "shard", updates, 0, Loop())
    late.sink.allow_writes(WriterTerm(1))
    faster = View(tmp_path / "faster", tmp_path / "shard", updates, 0, Loop())
    faster.sink.allow_writes(WriterTerm(term))
    for view in (late, faster):
        view.step(10)
    stage = shard_updates.stage

    def overtaken(shard: Shard, append: AppendAttempt, lost: Collection[str] = ()) -> list[StagedFile]:
        monkeypatch.setattr(materialized_view, "stage", stage)
        files = stage(shard, append, lost)
        assert files
        faster.write_until(10)
        return files

    monkeypatch.setattr(materialized_view, "stage", overtaken)
    late.loop.run_until(lambda: _has_heard(late, 10) and late.sink._job is None, late.sink.advance)

    assert_exact(tmp_path / "shard", updates, 10)
    assert_no_file_is_left_over(tmp_path / "shard")


def test_crash_a_correction_that_finds_no_room_takes_back_what_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again and again: what each attempt left would fill what little room there is."""
    updates = history(6, 20)
    view = View(tmp_path / "r1", tmp_path / "shard", updates, 0, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.step(20)
    write, shares = write_staged, count()

    def full(*arguments: Any, **named: Any) -> StagedFile | None:
        if 2 < next(shares) < 8:
            raise OSError("no space left on device")
        return write(*arguments, **named)

    monkeypatch.setattr(shard_updates, "SHARE_BYTES", 300)
    monkeypatch.setattr(shard_updates, "write_staged", full)
    view.write_until(20)

    assert next(shares) > 8
    assert_exact(tmp_path / "shard", updates, 20)
    assert_no_file_is_left_over(tmp_path / "shard")
