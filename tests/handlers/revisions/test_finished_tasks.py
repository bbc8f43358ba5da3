"""A continual task whose table is finished: whether another plan of it has anything to do, and where it begins."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.controller.harness import EMPTY, VIEW_SHARD, InstanceHarness, at, facade
from tests.handlers.revised_dataflows import dataflow as state
from tests.handlers.revised_dataflows import rev
from tests.protocol.samples import dataflow
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.handlers.revisions.as_of_selection import check_beginning, first_as_of, installation_as_of
from tidemark_operator.handlers.revisions.revision_ends import has_come_to_its_end
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.responses import DescribedCollection, DescribedDataflow, Description
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription, MaterializedViewSink

D = state("d", None)


def task(until: int | None) -> DataflowDescription:
    whole = dataflow("d", 300)
    (export,) = whole.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    sink = ContinualTaskSink(export.sink.shard, whole.source_imports[0].id)
    end = None if until is None else Time(until)
    return replace(whole, index_exports=(), sink_exports=(replace(export, sink=sink),), until=end)


def running(harness: InstanceHarness) -> Any:
    """An instance without replicas."""
    return facade(harness.instance, replicas={})


@pytest.mark.parametrize(("until", "ended"), [(400, True), (None, False), (2**62, False)])
def test_whether_there_is_more_to_come_of_it(until: int | None, ended: bool) -> None:
    """Its inputs go on."""
    assert has_come_to_its_end(running(InstanceHarness()), Registry(), D, task(until)) is ended  # type: ignore[arg-type]


def test_while_nothing_is_known_of_its_inputs_it_waits() -> None:
    """They may be finished: it must not begin its table anew."""
    with pytest.raises(Waiting, match="waiting for the first data"):
        has_come_to_its_end(running(InstanceHarness(upper=0)), Registry(), D, task(None))  # type: ignore[arg-type]


def test_a_task_that_a_replica_has_goes_on_while_its_table_cannot_be_read() -> None:
    """Else the replica would be told of all but it, as an operator begins, and drop what it has of it. Where nobody has
    it, it waits until the table is known."""
    harness, stored = InstanceHarness(upper=900), task(None)
    harness.shards.forget(VIEW_SHARD)
    (id,) = stored.export_ids
    has = (DescribedDataflow((id,), stored.plan_digest, Time(300)),)
    there = Description("incarnation", None, 0, has, (DescribedCollection(id, at(350), at(400)),), ())
    instance = running(harness)

    with pytest.raises(Waiting, match="how far its own table is"):
        installation_as_of(instance, Registry(), D, stored, sealed=False)  # type: ignore[arg-type]
    instance.replicas["r1"] = SimpleNamespace(description=there)
    assert installation_as_of(instance, Registry(), D, stored, sealed=False) == 350  # type: ignore[arg-type]


def test_no_edit_goes_on_where_the_history_between_is_gone() -> None:
    """It was planned where its inputs can be read, and is to write the same table."""
    harness, edited = InstanceHarness(upper=900, since=800), replace(task(None), as_of=Time(800))
    harness.shards.observe(VIEW_SHARD, at(400), at(0))

    with pytest.raises(Rejected, match="a continual task must not leave them out"):
        installation_as_of(running(harness), Registry(), D, edited, sealed=False)  # type: ignore[arg-type]
    serving = state("d", rev("d", 1))
    with pytest.raises(Rejected, match="a continual task must not leave them out"):
        check_beginning(running(harness), Registry(), serving, task(None))
    assert first_as_of(running(harness), Registry(), serving, task(None)) == 800


def test_an_ended_task_needs_none_of_its_inputs() -> None:
    """It is edited long after its end, and ends there as before: nobody computes it."""
    harness = InstanceHarness(upper=900, since=800)
    harness.shards.observe(VIEW_SHARD, EMPTY, at(0))

    assert first_as_of(running(harness), Registry(), D, task(400)) == 0  # type: ignore[arg-type]
