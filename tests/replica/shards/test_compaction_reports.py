"""The result of a shard's compaction is reported, whether this replica follows the shard or not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.replica.worker_loop import Loop
from tidemark_persist import create_or_open
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.commands import AllowShardCompaction
from tidemark_protocol.messages.responses import ShardFrontiers
from tidemark_replica.command_loop.ingestion_commands import IngestionCommands
from tidemark_replica.command_loop.storage_state import StorageState
from tidemark_replica.spark.session import SparkHolder

ID = ShardId("s")


def compacting(loop: Loop, folder: Path, since: int) -> tuple[StorageState, str]:
    """A shard that is complete before time 50, and may be compacted up to `since`."""
    made = create_or_open(str(folder / "s"), pa.schema([("k", pa.int64())]), shard_id=ID)
    made.compare_and_append(None, expected_upper=0, new_upper=50, term=1)
    ingestions = IngestionCommands(SparkHolder(object), loop.jobs, folder / "cache")
    state = StorageState(ingestions, loop.handles, loop.watch, loop.jobs, loop.said.append, lambda: "/nowhere")
    state.apply(AllowShardCompaction(ID, made.location, Frontier.at(since)))
    return state, made.location


def test_of_a_shard_without_a_follower_here(tmp_path: Path) -> None:
    """Else whoever asked would not know, and ask every ten seconds for ever."""
    loop = Loop()
    state, _ = compacting(loop, tmp_path, 40)
    loop.run_until(lambda: loop.said, state.maintain)

    assert loop.said == [ShardFrontiers(ID, Frontier.at(50), Frontier.at(40))]


def test_of_one_that_is_followed_by_the_watch_alone(tmp_path: Path) -> None:
    """In its own order, in which nothing goes back."""
    loop = Loop()
    state, location = compacting(loop, tmp_path, 40)
    loop.watch.follow(ID, location, "test")
    loop.run_until(lambda: ShardFrontiers(ID, Frontier.at(50), Frontier.at(40)) in loop.said, state.maintain)

    sinces = [response.since for response in loop.said if isinstance(response, ShardFrontiers)]
    assert sinces == sorted(sinces)
    assert len(set(loop.said)) == len(loop.said)
