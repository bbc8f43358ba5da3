"""The watch on shards polls for commits of other processes, and is notified of this process's own."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.replica.worker_loop import Loop
from tests.waiting import BOUND
from tidemark_persist import Shard, create_or_open
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.responses import DescribedShard, ShardFrontiers
from tidemark_replica.shards import shards
from tidemark_replica.shards.shards import ShardHandles

ID = ShardId("s")


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """A shard that is complete before time 5."""
    made = create_or_open(str(tmp_path / "s"), pa.schema([("k", pa.int64())]), shard_id=ID)
    made.compare_and_append(None, expected_upper=0, new_upper=5, term=1)
    return made


class SlowHandles(ShardHandles):
    """Looks end when they are let go, with what they saw at their beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.go = threading.Event()
        self.go.set()

    def describe(self, id: ShardId, location: str) -> DescribedShard:
        self.looks += 1
        seen = super().describe(id, location)
        self.go.wait(BOUND)
        return seen


def upper(loop: Loop) -> int | None:
    seen = loop.watch.state(ID)
    return None if seen is None else seen.upper.encode()


def test_a_move_by_another_process_is_found_by_looking(shard: Shard) -> None:
    loop = Loop()
    loop.watch.follow(ID, shard.location, "test")
    loop.run_until(lambda: upper(loop) == 5)

    shard.compare_and_append(None, expected_upper=5, new_upper=9, term=1)
    loop.run_until(lambda: ShardFrontiers(ID, Frontier.at(9), Frontier.at(0)) in loop.said)


def test_a_move_by_this_process_is_told_without_a_look(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next look waits, for nothing is to be expected from others."""
    monkeypatch.setattr(shards, "OBSERVED_SECONDS", BOUND)
    handles = SlowHandles()
    loop = Loop(handles)
    loop.watch.follow(ID, shard.location, "test")
    loop.run_until(lambda: upper(loop) == 5)
    looks = handles.looks

    loop.watch.observe(ID, Frontier.at(9), Frontier.at(2))

    assert loop.said[-1] == ShardFrontiers(ID, Frontier.at(9), Frontier.at(2))
    loop.watch.maintain()
    assert handles.looks == looks


def test_a_finished_shard_is_looked_at_rarely(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times a second while it may move, every few seconds then: what may be read of it still changes."""
    handles, now = SlowHandles(), [0.0]
    monkeypatch.setattr(shards, "time", SimpleNamespace(monotonic=lambda: now[0]))
    loop = Loop(handles)
    loop.watch.follow(ID, shard.location, "test")

    def looks(seconds: int) -> int:
        before = handles.looks
        for _ in range(seconds * 10):
            now[0] += 0.1
            loop.watch.maintain()
            loop.run_until(lambda: not loop.watch._watched[ID].polling)
        return handles.looks - before

    assert looks(10) > 80
    shard.compare_and_append(None, expected_upper=5, new_upper=EMPTY_SENTINEL, term=1)
    looks(10)
    assert upper(loop) == EMPTY_SENTINEL
    assert looks(60) <= 12

    shard.downgrade_since(4)
    looks(10)
    assert loop.said[-1] == ShardFrontiers(ID, Frontier.empty(), Frontier.at(4))


def test_a_look_that_began_before_a_move_does_not_take_it_back(shard: Shard) -> None:
    """It saw the shard as it was; the look after it counts again."""
    handles = SlowHandles()
    loop = Loop(handles)
    loop.watch.follow(ID, shard.location, "test")
    loop.run_until(lambda: upper(loop) == 5)
    handles.go.clear()
    looks = handles.looks
    loop.run_until(lambda: handles.looks > looks)

    shard.compare_and_append(None, expected_upper=5, new_upper=9, term=1)
    loop.watch.observe(ID, Frontier.at(9))
    handles.go.set()
    seen: set[int | None] = set()
    loop.run_until(lambda: handles.looks > looks + 1, lambda: seen.add(upper(loop)))

    assert seen == {9}
