"""What waits to be sent to one replica, and in which stage its connection is.

    replay of the history ─┐
    later commands ────────┴► hydration gate ──► outbox ──► the connection takes it

What is not for the replica (`leave_out`) goes nowhere. A link lives as long as one connection. Its outbox is bounded:
a replica that takes nothing is cut off, at the next command or the next probe, and gets the reduced history when it
comes back. So is one that says what cannot be (`refused`: what).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidemark_operator.controller.controller_events import HydrationOutOfMemory, Notice, SuspectCleared
from tidemark_operator.controller.hydration.hydration_gate import HydrationGate
from tidemark_operator.controller.replicas.excluded_dataflows import export_of
from tidemark_operator.errors import OperatorError
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.messages.commands import AllowCompaction, Command
from tidemark_protocol.messages.responses import Response

MAX_OUTBOX = 100_000


class Link:
    def __init__(self, connection: int, gate: HydrationGate | None = None) -> None:
        self.connection = connection
        self._excluded: set[GlobalId] = set()
        self._gate = gate or HydrationGate()
        self._outbox: list[Command] = []
        self.refused: str | None = None

    def refuse(self, why: str) -> None:
        """The replica has said what cannot be: nothing more is believed on this connection, which is to end."""
        self.refused = why

    def exclude(self, ids: Iterable[GlobalId]) -> None:
        """The replica is told nothing of these exports, to the end of them."""
        self._excluded |= set(ids)

    def includes(self, id: GlobalId) -> bool:
        """Whether the replica is told of the export, if there is one."""
        return id not in self._excluded

    def excludes(self, command: Command) -> bool:
        """Whether it is about one of those."""
        return bool(self._excluded) and export_of(command) in self._excluded

    def send(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if self.excludes(command):
                if isinstance(command, AllowCompaction) and command.frontier.is_empty:
                    self._excluded.discard(command.id)
                continue
            self._outbox += self._gate.absorb(command)

    def observe(self, response: Response) -> None:
        self._outbox += self._gate.observe(response)

    @property
    def occupants(self) -> tuple[str, ...]:
        """Whose dataflows are in a hydration slot."""
        return self._gate.occupants

    def recorded(self, owners: Collection[str]) -> None:
        """It is written down that these are: they may be scheduled."""
        self._outbox += self._gate.recorded(owners)

    def admit(self, now_ms: int) -> None:
        """Standings may have changed, and some may have waited for long."""
        self._outbox += self._gate.maintain(now_ms)

    def news(self, replica: ReplicaId) -> list[Notice]:
        """Suspects that have hydrated, and hydrations that ran out of memory, since the last call."""
        ran_out = [HydrationOutOfMemory(replica, each) for each in self._gate.out_of_memory()]
        return [*map(SuspectCleared, self._gate.cleared()), *ran_out]

    def drain(self) -> list[Command]:
        """What is to be sent now. Raises as `check` does."""
        self.check()
        out, self._outbox = self._outbox, []
        return out

    @property
    def queued(self) -> int:
        return len(self._outbox)

    @property
    def gated(self) -> int:
        """Dataflows that wait for their turn to hydrate."""
        return self._gate.waiting

    def is_gated(self, id: GlobalId) -> bool:
        """Whether an export is of one of them."""
        return self._gate.is_waiting(id)

    def check(self) -> None:
        """Raises OperatorError where the replica is to be cut off."""
        if len(self._outbox) > MAX_OUTBOX:
            raise OperatorError(f"the replica takes no commands: {len(self._outbox)} wait for it")
