"""Another replica deletes a shard and uses its location again: this replica does not go on with its old handle.

The other replica is the test, by `delete_shard` and `create_or_open`; this one has handles of before.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.replica.sinks.test_crash_sink import View, assert_exact, history
from tests.replica.worker_loop import Loop
from tidemark_persist import (
    ForeignCommit,
    Shard,
    ShardDeleted,
    ShardMismatch,
    ShardNotFound,
    create_or_open,
    delete_shard,
    open_shard,
)
from tidemark_persist.storage.storage import TOMBSTONE, Storage
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.messages.commands import AllowShardCompaction
from tidemark_protocol.messages.responses import Failure, FailureKind, ShardFrontiers
from tidemark_protocol.plan.dataflow import ShardMetadata, SourceImport
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.command_loop import storage_state
from tidemark_replica.command_loop.ingestion_commands import IngestionCommands
from tidemark_replica.command_loop.storage_state import StorageState, downgrade
from tidemark_replica.dataflow.step_inputs import StepInputs
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.spark.session import SparkHolder

OLD, NEW, T = ShardId("old"), ShardId("new"), GlobalId("t")
COLUMNS = (Column("k", BIGINT),)


def made(folder: Path, id: str, upper: int) -> Shard:
    """A shard that is complete before `upper`, of two commits."""
    shard = create_or_open(str(folder / "t"), pa.schema([("k", pa.int64())]), shard_id=id)
    shard.compare_and_append(None, expected_upper=0, new_upper=upper, term=1)
    return shard


def moved_on(shard: Shard, times: int) -> None:
    """Move the shard on by so many commits."""
    for _ in range(times):
        upper = shard.state().upper
        shard.compare_and_append(None, expected_upper=upper, new_upper=upper + 1, term=1)


def metadata(folder: Path, id: ShardId) -> ShardMetadata:
    return ShardMetadata(id, str(folder / "t"), COLUMNS)


def used_again(folder: Path, handles: ShardHandles, *, write: bool) -> Shard:
    """The old shard has handles here, at upper 50; then the new one is at its location, at upper 5."""
    location = made(folder, OLD, 50).location
    handles.describe(OLD, location)
    if write:
        handles.writer(metadata(folder, OLD))
    delete_shard(location, OLD)
    return made(folder, NEW, 5)


@pytest.mark.parametrize("write", [False, True], ids=["was read", "was written"])
def test_a_writer_gets_the_shard_that_it_names(tmp_path: Path, write: bool) -> None:
    handles = ShardHandles()
    used_again(tmp_path, handles, write=write)

    writer = handles.writer(metadata(tmp_path, NEW))
    writer.compare_and_append(None, expected_upper=5, new_upper=9, term=1)

    assert (writer.shard_id, open_shard(writer.location).state().upper) == (NEW, 9)
    assert handles.writer(metadata(tmp_path, NEW)) is writer
    assert handles.reader(writer.location, NEW) is writer


def test_forgetting_the_old_shard_keeps_the_new_handle(tmp_path: Path) -> None:
    """Something here may still follow it."""
    handles = ShardHandles()
    location = used_again(tmp_path, handles, write=True).location
    writer = handles.writer(metadata(tmp_path, NEW))

    with pytest.raises(ShardMismatch, match="belongs to shard 'new', not to 'old'"):
        handles.writer(metadata(tmp_path, OLD))
    handles.describe(OLD, location)

    assert handles.writer(metadata(tmp_path, NEW)) is writer


@pytest.mark.parametrize("write", [False, True], ids=["was read", "was written"])
def test_the_watch_tells_how_far_the_new_one_is(tmp_path: Path, write: bool) -> None:
    """Its reports never go back: one word of the old upper would stand for ever."""
    loop = Loop()
    location = used_again(tmp_path, loop.handles, write=write).location
    loop.watch.follow(NEW, location, "test")
    loop.run_until(lambda: loop.said)

    assert loop.said == [ShardFrontiers(NEW, Frontier.at(5), Frontier.at(0))]


def test_a_look_finds_out_that_the_location_is_empty(tmp_path: Path) -> None:
    handles = ShardHandles()
    location = made(tmp_path, OLD, 50).location
    handles.describe(OLD, location)
    delete_shard(location, OLD)

    assert not handles.describe(NEW, location).exists
    assert handles.cached_reader(location) is None


def test_a_look_by_a_reader_of_the_old_shard_is_not_unreadable_for_ever(tmp_path: Path) -> None:
    """Once the new table has more commits than the old one had, the old handle finds that its table is gone."""
    handles = ShardHandles()
    shard = used_again(tmp_path, handles, write=True)
    moved_on(shard, 5)

    seen = handles.describe(OLD, shard.location)

    assert (seen.error, seen.upper) == (None, Frontier.at(10))


def test_steps_read_the_shard_that_they_import(tmp_path: Path) -> None:
    handles = ShardHandles()
    shard = used_again(tmp_path, handles, write=False)
    rows = pa.table({"k": [7], "__time": [5], "__diff": [1]})
    shard.compare_and_append(rows, expected_upper=5, new_upper=6, term=1)
    inputs = StepInputs([SourceImport(T, metadata(tmp_path, NEW), (0,))], handles)

    assert inputs.step_cached(5, 6) is None
    assert len(inputs.step(5, 6)[T]) == 1
    assert inputs.step_cached(5, 6) is not None


def test_another_owners_shard_is_not_compacted(tmp_path: Path) -> None:
    """A wish that was for the shard before it: nobody has said that the new one's past is not wanted."""
    handles = ShardHandles()
    moved_on(used_again(tmp_path, handles, write=False), 60)
    location = str(tmp_path / "t")
    for known in (handles, ShardHandles()):
        with pytest.raises(ShardMismatch, match="belongs to shard 'new', not to 'old'"):
            downgrade(known, OLD, location, Frontier.at(40))
    assert open_shard(location).state().since == 0

    assert downgrade(handles, NEW, location, Frontier.at(40)).since == Frontier.at(40)


def test_compacting_a_deleted_shard_does_not_make_it_again(tmp_path: Path) -> None:
    """An empty table of the old owner would keep the location from the next one."""
    handles = ShardHandles()
    location = made(tmp_path, OLD, 50).location
    handles.describe(OLD, location)
    delete_shard(location, OLD)

    with pytest.raises(ShardNotFound):
        downgrade(handles, OLD, location, Frontier.at(40))
    assert not (tmp_path / "t").exists()


def compacting(loop: Loop, folder: Path, location: str, wanted: int) -> StorageState:
    ingestions = IngestionCommands(SparkHolder(object), loop.jobs, folder / "cache")
    state = StorageState(ingestions, loop.handles, loop.watch, loop.jobs, loop.said.append, lambda: "/nowhere")
    state.apply(AllowShardCompaction(OLD, location, Frontier.at(wanted)))
    return state


def test_a_wish_that_goes_no_further_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper does not move: whoever wants it asks again. While the since moves the wish stays."""
    monkeypatch.setattr(storage_state, "SINCE_SECONDS", 0.0)
    loop = Loop()
    shard = made(tmp_path, OLD, 50)
    state = compacting(loop, tmp_path, shard.location, 90)
    for _ in range(storage_state.IDLE_ROUNDS_MAX * 2):
        moved_on(shard, 1)
        near = Frontier.at(shard.state().upper - 1)
        loop.run_until(lambda near=near: any(s.since == near for s in loop.said), state.maintain)  # type: ignore[misc]
    assert len(state._compactions) == 1
    loop.run_until(lambda: not state._compactions, state.maintain)

    state.apply(AllowShardCompaction(OLD, shard.location, Frontier.at(90)))
    assert len(state._compactions) == 1


def test_the_wish_of_a_shard_that_another_replica_deleted_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this replica wrote it, and its handle finds nothing new."""
    monkeypatch.setattr(storage_state, "SINCE_SECONDS", 0.0)
    loop = Loop()
    shard = made(tmp_path, OLD, 50)
    state = compacting(loop, tmp_path, shard.location, 90)
    loop.run_until(lambda: loop.said, state.maintain)
    delete_shard(shard.location, OLD)

    loop.run_until(lambda: not state._compactions, state.maintain)
    assert not (tmp_path / "t").exists()


def failures(view: View) -> list[bool]:
    """The failures of the sink: whether each is for good."""
    return [s.stopped for s in view.loop.said if isinstance(s, Failure) and s.kind == FailureKind.SINK]


def view_of_before(folder: Path, upper: int) -> View:
    """A sink that has written its shard up to `upper`."""
    view = View(folder / "r", folder / "v", history(3, 40), 2, Loop())
    view.sink.allow_writes(WriterTerm(1))
    for step in range(10, upper + 1, 10):
        view.step(step)
        view.write_until(step)
    return view


def is_told(view: View) -> bool:
    try:
        view.sink.check_table()
    except ForeignCommit:
        return True
    return False


def test_a_sink_is_told_where_its_shard_was_made_again(tmp_path: Path) -> None:
    """Under the same id, as far as before, by another replica: the dataflow's next sink writes on."""
    view = view_of_before(tmp_path, 20)
    delete_shard(str(tmp_path / "v"), "v")
    other = View(tmp_path / "other", tmp_path / "v", view.updates, 2, Loop())
    other.sink.allow_writes(WriterTerm(1))
    for step in range(4, 21):
        other.step(step)
        other.write_until(step)
    view.step(40)
    view.loop.run_until(lambda: is_told(view), view.sink.advance)
    view.sink.stop()
    assert failures(view) == []
    successor = View(tmp_path / "r2", tmp_path / "v", view.updates, 2, view.loop)
    successor.sink.allow_writes(WriterTerm(1))
    successor.step(40)
    successor.write_until(40)
    assert_exact(tmp_path / "v", view.updates, 40)


def test_a_sink_of_a_deleted_shard_stops_and_makes_no_other(tmp_path: Path) -> None:
    view = view_of_before(tmp_path, 20)
    delete_shard(str(tmp_path / "v"), "v")
    view.step(40)
    view.loop.run_until(lambda: failures(view), view.sink.advance)

    assert failures(view) == [True]
    assert view.sink.term is None
    assert not (tmp_path / "v" / "_delta_log").exists()


def test_a_sink_of_a_shard_with_another_owner_stops(tmp_path: Path) -> None:
    """Else it would wait, and make its own anew as soon as that one is gone."""
    view = view_of_before(tmp_path, 20)
    delete_shard(str(tmp_path / "v"), "v")
    create_or_open(str(tmp_path / "v"), pa.schema([("n", pa.int64()), ("s", pa.string())]), shard_id=NEW)
    view.loop.handles.describe(NEW, str(tmp_path / "v"))
    view.step(40)
    view.loop.run_until(lambda: failures(view), view.sink.advance)

    assert failures(view) == [True]
    assert open_shard(str(tmp_path / "v")).state().upper == 0


def test_a_sink_waits_while_the_shard_before_its_own_is_being_deleted(tmp_path: Path) -> None:
    """The deletion was cut short, and is finished later; the sink's own shard follows."""
    location = str(tmp_path / "v")
    view = View(tmp_path / "r", tmp_path / "v", history(3, 40), 2, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.loop.run_until(lambda: view.loop.watch.state(ShardId("v")))
    Path(location).mkdir()
    Storage.at(location).write_json(TOMBSTONE, {"shard": OLD})
    view.step(20)
    view.loop.run_until(lambda: failures(view), view.sink.advance)
    assert failures(view) == [False]
    delete_shard(location, OLD)
    view.write_until(20)

    assert_exact(tmp_path / "v", view.updates, 20)


def test_a_tombstone_of_ones_own_shard_is_a_deletion_of_it(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    storage = Storage.at(str(tmp_path / "t"))
    storage.write_json(TOMBSTONE, {"shard": OLD})

    with pytest.raises(ShardDeleted):
        ShardHandles().writer(metadata(tmp_path, OLD))
