"""Whom an instance tells what happens on it, and asks what it may do: the operator's handlers."""

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
    """Who is told what happens on an instance."""

    def standing(self, instance: RunningInstance, owner: str) -> Standing:
        """Whether what is installed under that name may be let into its hydration."""

    def greeted(self, instance: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        """A replica answers; who is written down to be hydrating on this very process."""

    def occupied(self, instance: RunningInstance, replica: ReplicaId) -> None:
        """Who is `unrecorded` is to be written down, and then `recorded`."""

    def restore(self, instance: RunningInstance, description: Description) -> None:
        """A replica is about to be told everything: install what is stored and not installed yet."""

    def replica_changed(self, instance: RunningInstance, replica: ReplicaId) -> None:
        """It came online, or was lost."""

    def notice(self, instance: RunningInstance, notice: Notice) -> None: ...

    async def outranked(self, by: int) -> None:
        """A replica serves a client of a higher term; returns once our term is above it."""

    def ended(self, instance: RunningInstance, replica: ReplicaId, task: asyncio.Task[None]) -> None:
        """The connection's task ended: cancelled, or by a failure that no retry mends."""
