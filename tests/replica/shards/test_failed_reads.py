"""Reads that miss a file of a shard which the same process writes tell its writer: of peeks, and of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replica.plans import COLUMNS
from tests.replica.tables import Table, small_table
from tests.replica.two_dataflows import LOSER, OTHER, TwoDataflows
from tidemark_persist import PartGone
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import Peek, ShardTarget
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.peek.peek_reader import AnswerLimits, PeekReader
from tidemark_replica.peek.result_stash import ResultStash
from tidemark_replica.shards.shards import ShardHandles


def lose_all(table: Table) -> None:
    for part in table.shard.snapshot_parts(table.upper - 1):
        Path(table.metadata.location, part.path).unlink()


def test_of_a_peek(tmp_path: Path) -> None:
    table, handles = small_table(tmp_path), ShardHandles()
    location = table.metadata.location

    def no_session() -> Any:
        raise AssertionError("this peek needs no job")

    stash, batches = ResultStash(tmp_path / "stash"), BatchCache(tmp_path)
    reader = PeekReader(
        no_session,
        lambda id: None,
        batches,
        stash,
        open_shard=handles.reader,
        note_failed_read=handles.note_failed_read,
    )
    every = MapFilterProject.identity(table.metadata.schema)
    peek = Peek("p", ShardTarget(GlobalId("s"), table.metadata), Time(9), every, Finishing(), COLUMNS)
    lose_all(table)
    for writes in (False, True):
        if writes:
            handles.writer(table.metadata)
        with pytest.raises(PartGone):
            reader(peek, AnswerLimits(1 << 20), lambda: False)
        assert handles.take_missed(location) == writes
        assert not handles.take_missed(location)


def test_of_a_step(table: Table, two: TwoDataflows) -> None:
    """The error comes from a worker, as a text."""
    handles = two.loop.handles
    handles.writer(table.metadata)
    two.reach(10, LOSER, OTHER)
    assert not handles.take_missed(table.metadata.location)
    table.append(20, ((3, "c"), 12, 1))
    lose_all(table)
    two.wait_for_failure()
    assert handles.take_missed(table.metadata.location)
