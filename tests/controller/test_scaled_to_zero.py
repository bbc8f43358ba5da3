"""An instance without replicas: what it holds, and that it holds no more than that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.worlds import EMPTY, INDEX, INPUT, LAG, R1, R2, VIEW, World, at
from tests.protocol.samples import dataflow
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.instance import Instance
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.map_filter_project import MapFilterProject


def holds(world: World) -> dict[str, Frontier]:
    """Whoever holds the input, and where."""
    shard = world.shards.get(INPUT)
    assert shard is not None
    return dict(shard.holds)


@pytest.mark.parametrize("dies", [False, True], ids=["replicas leave", "the operator is another one besides"])
def test_an_instance_scaled_to_zero_holds_only_its_read_policy(dies: bool) -> None:
    """Of an index, what may still be read of it; of a view, the time from which on it has not been written. Not what a
    replica that is gone had yet to read, nor what a query asked for."""
    world = World(upper=900)
    world.connect(R1, R2)
    world.install(as_of=300)
    world.report(R1, at(700))
    world.report(R2, at(400))
    world.maintain()
    asked = Peek("p", IndexTarget(INDEX), Time(650), MapFilterProject(()), Finishing(), ())
    world.instance.peek(asked)
    assert set(holds(world).values()) == {at(399)}, "the slower replica's, of the index and of the view"

    world.instance.disconnect(R2)
    world.instance.disconnect(R1)
    world.instance.cancel_peek("p")
    if dies:
        again = replace(dataflow("d", 300), as_of=Time(600))
        world.instance = Instance(world.shards)
        world.instance.create(Dataflow("ns/d", again, LAG), WriterTerm(8))
        world.instance.dataflows.seed({INDEX: at(700), VIEW: at(700)})
    for _ in range(3):
        world.maintain()
    assert holds(world) == {f"export {INDEX}": at(600), f"export {VIEW}": at(699)}

    world.shards.observe(INPUT, at(5_000), at(0))
    world.now += 60_000
    world.maintain()
    assert set(holds(world).values()) == {at(600), at(699)}, "time that passes takes nothing away"
    world.connect(R1)
    (created,) = [m for m in world.sent(R1) if isinstance(m, c.CreateDataflow)]
    assert created.dataflow.as_of == 600


def test_what_is_dropped_without_replicas_holds_nothing() -> None:
    """Nobody has to say that it is done with it."""
    world = World(upper=900)
    world.connect(R1)
    world.install(as_of=300)
    world.report(R1, at(700))
    world.instance.disconnect(R1)
    world.instance.drop("ns/d")

    assert all(frontier == EMPTY for frontier in holds(world).values())
