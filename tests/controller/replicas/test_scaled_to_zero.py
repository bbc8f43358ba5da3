"""An instance without replicas: the holds that it keeps, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, INDEX, INPUT, LAG, R1, R2, VIEW, InstanceHarness, at
from tests.protocol.samples import dataflow
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.instance import Instance
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.map_filter_project import MapFilterProject


def holds(harness: InstanceHarness) -> dict[str, Frontier]:
    """Whoever holds the input, and where."""
    shard = harness.shards.get(INPUT)
    assert shard is not None
    return dict(shard.holds)


@pytest.mark.parametrize("dies", [False, True], ids=["replicas leave", "the operator is another one besides"])
def test_an_instance_scaled_to_zero_holds_only_its_read_policy(dies: bool) -> None:
    """The hold of an index is on what may still be read of it, that of a view on the time from which on it has not been
    written. It is not on what a lost replica had yet to read, nor what a query asked for."""
    harness = InstanceHarness(upper=900)
    harness.connect(R1, R2)
    harness.install(as_of=300)
    harness.report(R1, at(700))
    harness.report(R2, at(400))
    harness.maintain()
    asked = Peek("p", IndexTarget(INDEX), Time(650), MapFilterProject(()), Finishing(), ())
    harness.instance.peek(asked)
    assert set(holds(harness).values()) == {at(399)}, "the slower replica's, of the index and of the view"

    harness.instance.disconnect(R2)
    harness.instance.disconnect(R1)
    harness.instance.cancel_peek("p")
    if dies:
        again = replace(dataflow("d", 300), as_of=Time(600))
        harness.instance = Instance(harness.shards)
        harness.instance.create(Dataflow("ns/d", again, LAG), WriterTerm(8))
        harness.instance.dataflows.seed({INDEX: at(700), VIEW: at(700)})
    for _ in range(3):
        harness.maintain()
    assert holds(harness) == {f"export {INDEX}": at(600), f"export {VIEW}": at(699)}

    harness.shards.observe(INPUT, at(5_000), at(0))
    harness.now += 60_000
    harness.maintain()
    assert set(holds(harness).values()) == {at(600), at(699)}, "time that passes takes nothing away"
    harness.connect(R1)
    (created,) = [m for m in harness.sent(R1) if isinstance(m, c.CreateDataflow)]
    assert created.dataflow.as_of == 600


def test_a_dataflow_dropped_without_replicas_holds_nothing() -> None:
    """Nobody has to say that it is done with it."""
    harness = InstanceHarness(upper=900)
    harness.connect(R1)
    harness.install(as_of=300)
    harness.report(R1, at(700))
    harness.instance.disconnect(R1)
    harness.instance.drop("ns/d")

    assert all(frontier == EMPTY for frontier in holds(harness).values())
