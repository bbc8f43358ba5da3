"""A table that the previous revision finished: the new revision does not take its end for its own.

r1   as of 300, until 400, term 6    ──────────────► finished     just before r2 was told that it may write
r2   as of 300, until later, term 7  ────────────────────────     sees a table that is finished
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, LAG, R1, R2, TERM, VIEW, VIEW_SHARD, InstanceHarness, at
from tests.controller.replicas.test_excluded_dataflows import OWNER, collection, connect, held, view
from tidemark_operator.controller.controller_events import DataflowChanged, Notice
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription, MaterializedViewSink

BEFORE = WriterTerm(TERM - 1)
LATER = 2**62
CHANGED = DataflowChanged(OWNER)


def follower(description: DataflowDescription) -> InstanceHarness:
    """The dataflow that is to go on with another revision's table, as it is then."""
    harness = InstanceHarness(upper=500)
    harness.instance.create(Dataflow(OWNER, description, LAG, stays=True, inherited=frozenset({VIEW_SHARD})), TERM)
    connect(harness, R1, at(350))
    harness.report(R1, at(350), VIEW)
    return harness


def task(until: int | None) -> DataflowDescription:
    whole = view(until)
    (export,) = whole.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    sink = ContinualTaskSink(export.sink.shard, whole.source_imports[0].id)
    return replace(whole, sink_exports=(replace(export, sink=sink),))


def is_described(harness: InstanceHarness, term: WriterTerm, upper: Frontier = EMPTY) -> list[Notice]:
    """A replica tells who has written the table last."""
    harness.instance.shard_reports.described([DescribedShard(VIEW_SHARD, True, upper, at(0), term)], harness.now)
    return harness.maintain()


@pytest.mark.parametrize("until", [400, LATER], ids=["the same end", "a later end"])
def test_must_not_take_the_end_of_the_revision_before_for_its_own(until: int) -> None:
    """The rows that it has computed cannot be in that table: it is not finished, its inputs stay, and that is told,
    once."""
    harness = follower(view(until))
    harness.report(R1, EMPTY, VIEW)
    harness.maintain()
    assert harness.shards.needs_end_term_now
    assert (VIEW_SHARD, "file:///data/d") in harness.shards.addresses(pending=True)

    assert CHANGED in is_described(harness, BEFORE)
    assert CHANGED not in harness.maintain()
    assert not harness.shards.needs_end_term_now
    assert (collection(harness).write, held(harness)) == (at(350), at(349))

    connect(harness, R2, EMPTY)
    harness.report(R2, EMPTY, VIEW)
    harness.maintain()
    assert (collection(harness).write, held(harness)) == (at(350), at(349))


def test_its_own_end_is_believed_once_it_is_known_to_be_that() -> None:
    """Another may write before a replica has said who has."""
    harness = follower(view())
    assert is_described(harness, BEFORE, at(350)) == []
    harness.report(R1, EMPTY, VIEW)
    harness.maintain()
    assert collection(harness).write == at(350)

    assert CHANGED not in is_described(harness, TERM)
    assert collection(harness).write == EMPTY
    assert held(harness) is None


def test_the_first_revision_of_a_table_is_asked_nothing() -> None:
    """Nobody else could have finished it."""
    harness = InstanceHarness(upper=500)
    harness.instance.create(Dataflow(OWNER, view(), LAG, stays=True), TERM)
    connect(harness, R1, at(350))
    harness.report(R1, EMPTY, VIEW)

    assert collection(harness).write == EMPTY
    assert not harness.shards.needs_end_term_now


@pytest.mark.parametrize(("until", "ended"), [(400, True), (LATER, False)])
def test_a_task_that_has_ended_too_has_nothing_more_to_do(until: int, ended: bool) -> None:
    """It goes on with what the one before has left. One that has not ended cannot: whatever term the table has, which
    a task that reads its own table sets without writing."""
    harness = follower(task(until))
    harness.report(R1, EMPTY, VIEW)
    news = is_described(harness, TERM)

    assert (CHANGED in news) is not ended
    assert (collection(harness).write == EMPTY) is ended


def test_an_end_is_of_the_term_that_is_told_with_it() -> None:
    """Not of one that a replica said before, of a table that was not finished."""
    harness = follower(view(400))
    is_described(harness, WriterTerm(TERM + 9), at(350))
    harness.report(R1, EMPTY, VIEW)

    assert CHANGED in is_described(harness, BEFORE)
    assert collection(harness).write == at(350)


def test_a_revision_without_the_table_retracts_nothing() -> None:
    """A replica of another instance has not its folder."""
    harness = follower(view(400))
    harness.report(R1, EMPTY, VIEW)
    is_described(harness, BEFORE)
    not_there = DescribedShard(VIEW_SHARD, False, at(0), at(0), WriterTerm(0))
    harness.instance.shard_reports.described([not_there], harness.now)
    shard = harness.shards.get(VIEW_SHARD)

    assert shard is not None
    assert shard.end_term == BEFORE


def test_one_that_says_that_it_is_finished_is_contradicted_and_not_asked_for_again_at_once() -> None:
    """It is asked with all else, now and then, as it may be finished a moment later."""
    harness = follower(view(LATER))
    harness.report(R1, EMPTY, VIEW)
    assert harness.shards.needs_end_term_now
    for _ in range(3):
        is_described(harness, TERM, at(350))
        assert not harness.shards.needs_end_term_now
        assert (VIEW_SHARD, "file:///data/d") in harness.shards.addresses(pending=True)
