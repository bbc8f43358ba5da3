"""An operator's side without an API server: an instance with its connections and a listener."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import cast

from tests.controller.recording_listener import Heard
from tidemark_operator.controller.controller_events import Notice
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.fleet.fleet import MAINTAIN_SECONDS
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.kube.client import Kube
from tidemark_operator.kube.leadership import Leadership
from tidemark_protocol.ids import ReplicaId, WriterTerm
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.messages.responses import Description, Response
from tidemark_protocol.plan.dataflow import DataflowDescription

LAG_MS = 60_000


class DeadlineExceeded(Exception):
    """An awaited event did not happen in time."""


class Stored(Heard):
    """The listener: it installs the stored dataflows once the first replica has described itself."""

    def __init__(self, as_of: Callable[[DataflowDescription, Description], DataflowDescription]) -> None:
        super().__init__()
        self.dataflows: Sequence[DataflowDescription] = ()
        self._as_of = as_of

    def restore(self, instance: RunningInstance, description: Description) -> None:
        for wanted in self.dataflows:
            if instance.core.dataflows.get(wanted.name) is None:
                dataflow = Dataflow(wanted.name, self._as_of(wanted, description), LAG_MS)
                instance.core.create(dataflow, WriterTerm(1))

    def notice(self, instance: RunningInstance, notice: Notice) -> None:
        """Nobody waits for any, and there are very many."""


class Controlled(RunningInstance):
    """An instance that notes how old news are when they are known."""

    def __init__(self, config: InstanceConfig, listener: Stored, term: int = 1) -> None:
        leadership = Leadership(cast(Kube, None), "bench", "bench")  # the term is given: no Lease is looked at
        leadership.term = term
        super().__init__("bench", config, ShardBook(), leadership, listener)
        self.delays: list[float] = []
        """Milliseconds from when a replica said how far it is until that was known, by frame."""

    def received(self, replica: ReplicaId, connection: int, responses: Sequence[Response]) -> None:
        super().received(replica, connection, responses)
        said = [w.encode() for r in responses if (w := getattr(r, "write", None)) is not None]
        if said:
            self.delays.append(time.time() * 1000 - max(said))

    def reported(self, dataflows: Sequence[DataflowDescription], replicas: int) -> bool:
        """Whether so many replicas have said how far every export is."""
        found = (self.core.dataflows.collection(id) for d in dataflows for id in d.export_ids)
        return all(c is not None and sum(r.hydrated for r in c.replicas.values()) >= replicas for c in found)

    async def keep(self) -> None:
        """The clock that the operator's fleet is for it."""
        while True:
            self.maintain()
            await asyncio.sleep(MAINTAIN_SECONDS)


async def until(what: str, condition: Callable[[], bool], bound: float, pause: float = 0.01) -> float:
    """The clock when it came true; raises DeadlineExceeded."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > bound:
            raise DeadlineExceeded(f"{what}: not within {bound:.0f} s")
        await asyncio.sleep(pause)
    return time.perf_counter()
