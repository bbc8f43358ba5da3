"""The interface of the operator's handlers that an instance reports to, and asks for standings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from tidemark_operator.controller.controller_events import Notice
from tidemark_operator.controller.hydration.quarantine import Standing
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.responses import Description

if TYPE_CHECKING:
    from tidemark_operator.fleet.running_instance import RunningInstance


class InstanceListener(Protocol):
    """Receives what happens on an instance."""

    def standing(self, instance: RunningInstance, owner: str) -> Standing:
        """Whether the dataflow that is installed for this owner may hydrate."""

    def greeted(self, instance: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        """A replica answers. Returns the owners that are recorded as hydrating in this very process."""

    def occupied(self, instance: RunningInstance, replica: ReplicaId) -> None:
        """The occupants of hydration slots changed: record `unrecorded`, then call `recorded`."""

    def restore(self, instance: RunningInstance, description: Description) -> None:
        """A replica is about to receive all dataflows: install those that are stored and not installed yet."""

    def replica_changed(self, instance: RunningInstance, replica: ReplicaId) -> None:
        """A replica came online, or was lost."""

    def notice(self, instance: RunningInstance, notice: Notice) -> None:
        """Something happened that no waiting client took."""

    async def outranked(self, by: int) -> None:
        """A replica serves a client of the higher term `by`; returns once our term is above it."""

    def ended(self, instance: RunningInstance, replica: ReplicaId, task: asyncio.Task[None]) -> None:
        """The connection's task ended: it was cancelled, or failed in a way that no retry mends."""
