"""A listener without an operator: it lets every dataflow hydrate and records all events."""

from __future__ import annotations

import asyncio

from tidemark_operator.controller.controller_events import Notice
from tidemark_operator.controller.hydration.quarantine import HydrationStanding
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.responses import Description


class Heard:
    """A `running_instance.InstanceListener`. `notices`: what it was told."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def restore(self, instance: RunningInstance, description: Description) -> None: ...

    def standing(self, instance: RunningInstance, owner: str) -> HydrationStanding:
        return HydrationStanding.CLEAR

    def greeted(self, instance: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        return ()

    def occupied(self, instance: RunningInstance, replica: ReplicaId) -> None:
        if (occupied := instance.unrecorded(replica)) is not None:
            instance.recorded(replica, occupied)

    def replica_changed(self, instance: RunningInstance, replica: ReplicaId) -> None: ...

    def notice(self, instance: RunningInstance, notice: Notice) -> None:
        self.notices.append(notice)

    async def outranked(self, by: int) -> None:
        raise AssertionError(f"a replica serves term {by}")

    def connection_ended(self, instance: RunningInstance, replica: ReplicaId, task: asyncio.Task[None]) -> None: ...
