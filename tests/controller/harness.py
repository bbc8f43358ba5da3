"""A controller's instance for tests: one input shard, an index and a view over it, and scripted replicas."""

from __future__ import annotations

from typing import Any

from tests.protocol.samples import SHARD, dataflow
from tidemark_operator.controller.controller_events import Notice
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.instance import Instance
from tidemark_operator.fleet.instance_facade import InstanceFacade
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import Frontiers, Response

NOW = 1_000_000
LAG = 100
R1, R2 = ReplicaId("r1"), ReplicaId("r2")
INPUT = SHARD.shard_id
INDEX, VIEW = GlobalId("d/i"), GlobalId("d/v")
VIEW_SHARD = ShardId("d/v")
TERM = WriterTerm(7)


def at(time: int) -> Frontier:
    return Frontier.at(time)


EMPTY = Frontier.empty()


def facade(instance: Instance, **attributes: object) -> Any:
    """The facade of an instance around its controller, with these attributes of a `RunningInstance`."""
    seen = InstanceFacade(instance)
    seen.__dict__.update(attributes)
    return seen


class InstanceHarness:
    """An instance with its input known to be complete below `upper`."""

    def __init__(self, upper: int = 500, since: int = 0) -> None:
        self.shards = ShardBook()
        self.shards.register(INPUT, SHARD.location, LAG)
        self.shards.register(VIEW_SHARD, "file:///data/d", LAG)
        self.shards.observe(INPUT, at(upper), at(since))
        self.shards.observe(VIEW_SHARD, at(0), at(0))
        self.instance = Instance(self.shards)
        self.connections = 0
        self.now = NOW

    def install(self, as_of: int = 300) -> None:
        self.instance.create(Dataflow("ns/d", dataflow("d", as_of), LAG), TERM)

    def connect(self, *replicas: ReplicaId) -> None:
        for replica in replicas:
            self.connections += 1
            self.instance.connect(replica, self.connections, self.now)

    def sent(self, replica: ReplicaId) -> list[c.Command]:
        link = self.instance.link(replica, self.connection(replica))
        assert link is not None
        return link.drain()

    def connection(self, replica: ReplicaId) -> int:
        return self.instance._links[replica].connection

    def hear(self, replica: ReplicaId, response: Response) -> list[Notice]:
        return self.instance.receive(replica, self.connection(replica), response, self.now)

    def report(self, replica: ReplicaId, time: Frontier, *ids: GlobalId) -> list[Notice]:
        """All three frontiers of the exports are at `time`."""
        heard = [self.hear(replica, Frontiers(id, time, time, time)) for id in ids or (INDEX, VIEW)]
        return [notice for notices in heard for notice in notices]

    def maintain(self) -> list[Notice]:
        return self.instance.maintain(self.now)
