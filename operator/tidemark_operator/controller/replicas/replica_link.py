"""The commands that wait to be sent on one connection.

    replay of the history ─┐
    later commands ────────┴► hydration gate ──► outbox ──► the connection takes it

Commands about excluded exports are dropped (`exclude`). A link lives as long as one connection. Its outbox is bounded:
a replica that takes no commands is disconnected, at the next command or the next probe, and receives the reduced
history when it comes back. A replica that breaks the protocol is disconnected too (`refused`: why).
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


class ReplicaLink:
    """The outbox and the hydration gate of one connection. Callers read the gate; commands that it lets
    through go to the outbox."""

    def __init__(self, connection: int, gate: HydrationGate) -> None:
        self.connection, self.gate = connection, gate
        self._excluded: set[GlobalId] = set()
        self._outbox: list[Command] = []
        self.refused: str | None = None

    def refuse(self, why: str) -> None:
        """Discard everything more from this connection, which must end: the replica broke the protocol."""
        self.refused = why

    def exclude(self, ids: Iterable[GlobalId]) -> None:
        """Send the replica nothing about these exports until they are dropped."""
        self._excluded |= set(ids)

    def includes(self, id: GlobalId) -> bool:
        """Whether the replica is sent commands about the export."""
        return id not in self._excluded

    def excludes(self, command: Command) -> bool:
        """Whether the command is about an excluded export."""
        return bool(self._excluded) and export_of(command) in self._excluded

    def send(self, commands: Iterable[Command]) -> None:
        """Queue commands, as far as the gate lets them through."""
        for command in commands:
            if self.excludes(command):
                if isinstance(command, AllowCompaction) and command.frontier.is_empty:
                    self._excluded.discard(command.id)
                continue
            self._outbox += self.gate.absorb(command)

    def observe(self, response: Response) -> None:
        """Take a response, which may free a hydration slot."""
        self._outbox += self.gate.observe(response)

    def recorded(self, owners: Collection[str]) -> None:
        """The slots of these owners are recorded: they may be scheduled."""
        self._outbox += self.gate.recorded(owners)

    def admit(self, now_ms: int) -> None:
        """Fill hydration slots: standings may have changed, or a hydration may have stalled."""
        self._outbox += self.gate.maintain(now_ms)

    def news(self, replica: ReplicaId) -> list[Notice]:
        """Suspects that have hydrated, and hydrations that ran out of memory, since the last call."""
        ran_out = [HydrationOutOfMemory(replica, each) for each in self.gate.out_of_memory()]
        return [*map(SuspectCleared, self.gate.cleared()), *ran_out]

    def drain(self) -> list[Command]:
        """Return the queued commands and clear the queue. Raises: OperatorError, as `check`."""
        self.check()
        out, self._outbox = self._outbox, []
        return out

    @property
    def queued(self) -> int:
        """The number of commands that wait to be sent."""
        return len(self._outbox)

    def check(self) -> None:
        """Raises: OperatorError where too many commands wait, so that the connection must end."""
        if len(self._outbox) > MAX_OUTBOX:
            raise OperatorError(f"the replica takes no commands: {len(self._outbox)} are queued")
