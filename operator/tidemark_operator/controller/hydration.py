"""How many dataflows hydrate at once on one replica: the rest wait, in the order in which they were scheduled.

    absorb(command) -> commands to send now          observe(response) -> commands to send now

Only Schedule is ever held back. A dataflow starts once all of its exports are scheduled, so its exports pass the gate
together; its slot frees when each of them has produced output beyond where it began, has failed, or is gone: one that
is refused, or fails again and again, keeps nobody waiting. One gate belongs to one connection: it begins empty, and
what the replica has hydrated already frees its slot with the first report. Queries, subscribes and copies pass at
once: somebody waits.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidemark_protocol.commands import AllowCompaction, Command, CreateDataflow, Schedule
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.responses import Frontiers, Response, Status

DEFAULT_CONCURRENCY = 4
_STUCK = ("refused", "fenced")


@dataclass(eq=False)
class _Group:
    """The exports of one dataflow, and those that have not hydrated."""

    as_of: Frontier
    missing: set[GlobalId]
    held: list[Schedule] = field(default_factory=list)
    admitted: bool = False


class HydrationGate:
    def __init__(self, concurrency: int = DEFAULT_CONCURRENCY) -> None:
        self._free = concurrency
        self._groups: dict[GlobalId, _Group] = {}
        self._waiting: deque[_Group] = deque()

    @property
    def waiting(self) -> int:
        """Dataflows that are scheduled and have no slot yet."""
        return len(self._waiting)

    def absorb(self, command: Command) -> list[Command]:
        """A command on its way to the replica."""
        match command:
            case CreateDataflow(dataflow) if not (dataflow.is_one_shot or dataflow.is_transient):
                group = _Group(Frontier.at(dataflow.as_of), set(dataflow.export_ids))
                self._groups.update(dict.fromkeys(dataflow.export_ids, group))
                return [command]
            case Schedule(id) if id in self._groups:
                return self._schedule(self._groups[id], command)
            case AllowCompaction(id, frontier) if frontier.is_empty:
                self._forget(id)
                return [command, *self._done(id)]
            case _:
                return [command]

    def observe(self, response: Response) -> list[Command]:
        """A response on its way to the controller."""
        if isinstance(response, Frontiers) and response.output is not None:
            group = self._groups.get(response.id)
            if group is not None and group.as_of < response.output:
                return self._done(response.id)
        if isinstance(response, Status) and (response.kind in _STUCK or response.kind.endswith("_failed")):
            return self._done(response.id)
        return []

    def _schedule(self, group: _Group, command: Schedule) -> list[Command]:
        if group.admitted:
            return [command]
        group.held.append(command)
        if group not in self._waiting:
            self._waiting.append(group)
        return self._admit()

    def _forget(self, id: GlobalId) -> None:
        """A Schedule that was held back for what is dropped now is never sent: it would name what is not there."""
        if group := self._groups.get(id):
            group.held = [schedule for schedule in group.held if schedule.id != id]

    def _admit(self) -> list[Command]:
        released: list[Command] = []
        while self._free and self._waiting:
            group = self._waiting.popleft()
            self._free -= 1
            group.admitted = True
            released += group.held
            group.held = []
        return released

    def _done(self, id: GlobalId) -> list[Command]:
        group = self._groups.pop(id, None)
        if group is None:
            return []
        group.missing.discard(id)
        if group.missing:
            return []
        released: list[Command] = list(group.held)
        if group.admitted:
            self._free += 1
        elif group in self._waiting:
            self._waiting.remove(group)
        return released + self._admit()
