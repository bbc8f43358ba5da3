"""Continual tasks in the controller: the holds that let them go on exactly where they were."""

from __future__ import annotations

from dataclasses import replace

from tests.controller.harness import EMPTY, INPUT, LAG, R1, R2, TERM, VIEW_SHARD, InstanceHarness, at
from tests.protocol.samples import ROW, SHARD, SOURCE, A
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages import commands as c
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    ContinualTaskSink,
    DataflowDescription,
    ShardMetadata,
    SinkExport,
    SourceImport,
)
from tidemark_protocol.plan.lir import Get

TASK, OWN = GlobalId("d/task"), GlobalId("d/own")


def task(own: GlobalId | None, as_of: int = 300) -> DataflowDescription:
    """Adds what its own table holds, or its input, at each change of that."""
    read = own or SOURCE
    sink = ContinualTaskSink(ShardMetadata(VIEW_SHARD, "file:///data/d", (A,)), SOURCE, own)
    description = DataflowDescription(
        name="d",
        source_imports=(SourceImport(SOURCE, SHARD, (0,)),),
        index_imports=(),
        objects=(BuildDesc(GlobalId("d/o"), Get(read, ROW)),),
        index_exports=(),
        sink_exports=(SinkExport(TASK, GlobalId("d/o"), sink),),
        as_of=Time(as_of),
    )
    check_dataflow(description)
    return description


def installed(own: GlobalId | None) -> InstanceHarness:
    harness = InstanceHarness(upper=900)
    harness.instance.create(Dataflow("ns/d", task(own), LAG), TERM)
    harness.connect(R1, R2)
    return harness


def held(harness: InstanceHarness, id: ShardId) -> int | None:
    shard = harness.shards.get(id)
    assert shard is not None
    found = [f.time for f in shard.holds.values()]
    return min((t for t in found if t is not None), default=None)


def test_a_task_may_write_and_is_scheduled_like_a_view() -> None:
    """With the term of its revision; what it reads of itself is no input that it would wait for."""
    harness = installed(OWN)

    assert c.AllowWrites(TASK, TERM) in harness.sent(R1)
    assert harness.instance.dataflows.get("ns/d").scheduled  # type: ignore[union-attr]


def test_inputs_are_held_where_the_slower_replica_goes_on() -> None:
    """The output's upper, less one: the last time that is not done again."""
    harness = installed(None)
    harness.report(R1, at(600), TASK)
    harness.maintain()
    assert held(harness, INPUT) == 300
    harness.report(R2, at(500), TASK)
    harness.maintain()

    assert held(harness, INPUT) == 499
    assert held(harness, VIEW_SHARD) is None


def test_a_tasks_own_output_is_held_a_millisecond_longer() -> None:
    """It reads what was written at 499 at 500, as an update of its own: not yet put together with what was before."""
    harness = installed(OWN)
    for replica in (R1, R2):
        harness.report(replica, at(500), TASK)
    harness.maintain()

    assert (held(harness, INPUT), held(harness, VIEW_SHARD)) == (499, 498)
    harness.instance.drop("ns/d")
    for replica in (R1, R2):
        harness.report(replica, EMPTY, TASK)
    harness.maintain()
    assert (held(harness, INPUT), held(harness, VIEW_SHARD)) == (None, None)


def test_reading_itself_is_part_of_what_a_task_is() -> None:
    """Another plan, with another identity."""
    assert task(None).plan_digest != task(OWN).plan_digest
    assert replace(task(OWN), as_of=Time(7)).plan_digest == task(OWN).plan_digest
