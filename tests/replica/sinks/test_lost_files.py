"""A data file of a view's table is lost while its replica writes it: told, and corrected by the next sink.

At no time does the table show fewer rows than the view has: reads fail by name until the correction has landed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.replica.sinks.test_crash_sink import VIEW, View, contents, history, persisted
from tests.replica.worker_loop import Loop
from tests.s3_fixtures import Place, Places
from tidemark_persist import ForeignCommit, NotReadable, PartGone, open_shard, read_part
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.sinks.table import lost_files
from tidemark_replica.sinks.table.continual_task import ContinualTaskSink


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_files, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(lost_files, "LOOK_FILES", 1)


def lose(place: Place, index: int) -> None:
    parts = open_shard(place.location).snapshot_parts(open_shard(place.location).state().upper - 1)
    (place.folder / parts[index].path).unlink()


def is_told(view: View) -> bool:
    try:
        view.sink.check_table()
    except ForeignCommit as foreign:
        return "is lost: another program deleted it" in str(foreign)
    return False


def assert_right_or_an_error(place: Place, updates: list[tuple[int | None, str | None, int, int, str | None]]) -> None:
    state = open_shard(place.location).state()
    for at in range(state.upper):
        try:
            found: Counter[tuple[object, ...]] = persisted(place.location, at)
        except (PartGone, NotReadable):
            continue
        assert found == contents(updates, at), f"at {at}"


@pytest.mark.parametrize("index", [0, -1])
def test_a_lost_file_is_told_and_corrected_by_the_next_sink(places: Places, tmp_path: Path, index: int) -> None:
    """The sink has written and goes on; each of its files is asked for in turn."""
    updates, place = history(0, 40), places.new()
    view = View(tmp_path / "r1", place.location, updates, 4, Loop())
    view.sink.allow_writes(WriterTerm(1))
    for upper in (20, 25, 30):
        view.step(upper)
        view.write_until(upper)
    view.loop.run_until(lambda: view.sink._lost_files._job is not None, view.sink.advance)
    assert not is_told(view)
    lose(place, index)
    view.loop.run_until(lambda: is_told(view), view.sink.advance)
    view.step(35)
    view.sink.advance()
    view.sink.stop()
    assert_right_or_an_error(place, updates)
    assert open_shard(place.location).state().upper == 30

    following = View(tmp_path / "r2", place.location, updates, 29, view.loop)
    following.sink.allow_writes(WriterTerm(1))
    following.step(35)
    following.write_until(35)
    following.step(40)
    following.write_until(40)
    assert_right_or_an_error(place, updates)
    state = open_shard(place.location).state()
    assert (state.since, state.upper) == (30, 40)
    assert [persisted(place.location, at) for at in range(30, 40)] == [contents(updates, at) for at in range(30, 40)]
    assert not is_told(following)


def test_a_failed_read_looks_for_all_files_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of many files is found long before its turn; other errors, and errors of other tables, tell nothing."""
    updates, place = history(1, 40), Place(str(tmp_path / "shard"), tmp_path / "shard")
    monkeypatch.setattr(lost_files, "LOOK_SECONDS", 1e6)
    view = View(tmp_path / "r1", place.location, updates, 4, Loop())
    view.sink.allow_writes(WriterTerm(1))
    for upper in (20, 25, 30):
        view.step(upper)
        view.write_until(upper)
    reader = view.loop.handles.reader(place.location)
    parts = reader.snapshot_parts(29)
    lose(place, -1)
    view.loop.handles.note_failed_read(place.location, RuntimeError("another error"))
    view.sink.advance()
    assert view.sink._lost_files._job is None
    with pytest.raises(PartGone) as gone:
        _ = [batch for part in parts for batch in read_part(part)]
    view.loop.handles.note_failed_read("/elsewhere", gone.value)
    view.loop.handles.note_failed_read(place.location, RuntimeError(f"Traceback ...\n{gone.value}\n"))
    view.loop.run_until(lambda: is_told(view), view.sink.advance)

    view.loop.handles.note_failed_read(place.location, gone.value)
    view.sink.advance()
    assert view.sink._lost_files._job is None, "all files are asked for once in LOOK_SECONDS"


def test_crash_a_file_lost_while_no_replica_ran_is_corrected_by_the_first_append(tmp_path: Path) -> None:
    """The comparison finds it: the dataflow need not begin anew once more."""
    updates, place = history(3, 40), Place(str(tmp_path / "shard"), tmp_path / "shard")
    view = View(tmp_path / "r1", place.location, updates, 4, Loop())
    view.sink.allow_writes(WriterTerm(1))
    for upper in (20, 30):
        view.step(upper)
        view.write_until(upper)
    lose(place, 0)
    restarted = View(tmp_path / "r2", place.location, updates, 22, Loop())
    restarted.sink.allow_writes(WriterTerm(2))
    restarted.step(40)
    restarted.loop.run_until(
        lambda: restarted.sink.write_frontier >= Frontier.at(40),
        lambda: (restarted.sink.advance(), restarted.sink.check_table())[0],
    )
    assert_right_or_an_error(place, updates)
    state = open_shard(place.location).state()
    assert (state.since, state.upper) == (30, 40)
    assert [persisted(place.location, at) for at in range(30, 40)] == [contents(updates, at) for at in range(30, 40)]


def test_a_lost_file_of_a_continual_task_is_left_to_people(tmp_path: Path) -> None:
    """The replica cannot compute the file's rows again, and a person may put the file back."""

    class Task(View):
        def made(self, shard: ShardMetadata) -> ContinualTaskSink:
            at, loop = Frontier.at(self.as_of), self.loop
            return ContinualTaskSink(VIEW, shard, at, loop.handles, loop.watch, loop.jobs, loop.said.append)

    updates = [(1, "a", time, 1, None) for time in range(10)]
    place = Place(str(tmp_path / "shard"), tmp_path / "shard")
    task = Task(tmp_path / "r1", place.location, updates, 0, Loop())
    task.sink.allow_writes(WriterTerm(1))
    for upper in (5, 10):
        task.step(upper)
        task.write_until(upper)
        if upper == 5:
            lose(place, 0)
    for _ in range(20):
        task.sink.advance()
    assert task.sink._lost_files._job is None
    assert not is_told(task)
