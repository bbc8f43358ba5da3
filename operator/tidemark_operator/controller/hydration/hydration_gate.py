"""The order in which dataflows hydrate on one replica, and the number of those that do so at a time.

    absorb(command)   -> commands to send now       observe(response) -> commands to send now
    occupants, to be recorded ─► recorded(owners)   -> commands to send now

The gate holds back `Schedule` and nothing else. A dataflow starts once all its exports are scheduled, so its exports
pass together. It leaves its slot when each export has produced output beyond its as_of, has failed, or is dropped.

    in good standing   `concurrency` at a time, in the order in which they were scheduled
    suspect            when no other dataflow can begin, and alone: a death is then certainly its own
    quarantined        not at all

A dataflow that imports an index waits until this replica has hydrated the index: in a slot it could do nothing before.
Queries, subscribes and copies pass at once, as a client waits for them.

A dataflow whose progress does not change for `STALL_MS` keeps no dataflow in good standing waiting, but it stays an
occupant: if the replica dies, it is blamed. Suspects wait for it all the same.

A dataflow that runs out of memory while the replica lives on leaves its slot, waits for another one, and is scheduled
once more: until then the replica leaves it alone.

A failure that a replica repeats to a new connection is of an attempt before it. It frees no slot and blames nobody: the
attempt that follows the `Schedule` of this gate counts. A dataflow that has stopped for good needs no slot.

One gate belongs to one connection. It begins with the dataflows that the same process of the replica was told to
hydrate before (`resumed`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from tidemark_operator.controller.hydration.hydration_history import DROPPED, FAILED, HYDRATED, RAN_OUT, Hydration
from tidemark_operator.controller.hydration.quarantine import HydrationPolicy, HydrationStanding
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import AllowCompaction, Command, CreateDataflow, Schedule
from tidemark_protocol.messages.responses import OUT_OF_MEMORY, Failure, Frontiers, Response, Status
from tidemark_protocol.plan.dataflow import DataflowDescription

STALL_MS = 600_000
"""A hydration without progress keeps others waiting for this time, in milliseconds."""
MOST_OCCUPANTS = 64
"""The record in the ComputeReplica's status has room for so many, and only a recorded dataflow is scheduled."""


@dataclass(frozen=True)
class MemoryExhaustion:
    """A hydration ran out of memory. `was_alone`: no other dataflow was in a slot; `attempt`: the replica's count."""

    owner: str
    was_alone: bool
    attempt: str


@dataclass(eq=False)
class _Group:
    """The exports of one dataflow. `missing`: those that have not hydrated; `imports`: indexes; `schedules`:
    commands that are not sent yet; `released`: the slot is recorded, so the dataflow may be scheduled. `progress`: a
    hash of the last progress report; `moved`: it changed since the last `maintain`; `moved_ms`: the time of the last
    `maintain` that found it changed. `was_known`: the replica had the dataflow when the connection began; `began`: its
    hydration, at `began_ms` if that is known; `outcome`: of an export that ended, if it did not hydrate."""

    owner: str
    as_of: Frontier
    imports: frozenset[GlobalId]
    missing: set[GlobalId]
    schedules: list[Schedule] = field(default_factory=list)
    released: bool = False
    was_known: bool = False
    began: bool = False
    began_ms: int | None = None
    outcome: str = ""
    progress: int | None = None
    moved: bool = True
    moved_ms: int = 0


class HydrationGate:
    """`owner_of`: the owner of an export. `resumed`: owners that this process of the replica is hydrating already.
    `is_resource`: whether an export belongs to a resource: a Dataflow that ends may have a single time, as a query.
    `known`: exports that the replica has already. `ended`: takes each hydration that has ended."""

    def __init__(
        self,
        policy: HydrationPolicy | None = None,
        owner_of: Callable[[GlobalId], str] = str,
        resumed: Collection[str] = (),
        is_resource: Callable[[GlobalId], bool] = lambda id: False,
        known: Collection[GlobalId] = (),
        ended: Callable[[Hydration], None] = lambda _: None,
    ) -> None:
        self._policy, self._owner_of, self._resumed = policy or HydrationPolicy(), owner_of, frozenset(resumed)
        self._is_resource, self._known, self._ended = is_resource, frozenset(known), ended
        self._groups: dict[GlobalId, _Group] = {}
        self._admitted: dict[_Group, None] = {}  # this and the next are in order of arrival
        self._waiting: dict[_Group, None] = {}
        self._now_ms = 0
        self._cleared: list[str] = []
        self._out_of_memory: list[MemoryExhaustion] = []
        self._failing: dict[GlobalId, _Group] = {}
        """Exports that have failed and gave their slot back."""
        self._unhydrated: dict[GlobalId, Frontier] = {}
        """Exports that this replica has not hydrated, failed ones included, with the as_of their output must pass."""

    @property
    def occupants(self) -> tuple[str, ...]:
        """Owners in a slot, in the order of admission."""
        return tuple(group.owner for group in self._admitted)

    @property
    def waiting_count(self) -> int:
        """The number of dataflows that are scheduled and have no slot yet."""
        return len(self._waiting)

    def is_waiting(self, id: GlobalId) -> bool:
        """Whether the export's dataflow is scheduled and has no slot yet."""
        group = self._groups.get(id)
        return group is not None and group in self._waiting

    def cleared(self) -> list[str]:
        """Return the suspects that have hydrated since the last call, and clear the list."""
        cleared, self._cleared = self._cleared, []
        return cleared

    def out_of_memory(self) -> list[MemoryExhaustion]:
        """Return the hydrations that ran out of memory since the last call, and clear the list. The caller records the
        blame before the next `admit` lets them in again."""
        found, self._out_of_memory = self._out_of_memory, []
        return found

    @property
    def hydrating(self) -> list[Hydration]:
        """The hydrations under way, in the order of admission."""
        begun = (group for group in self._admitted if group.began)
        return [Hydration(group.owner, group.as_of.time, group.began_ms) for group in begun]

    def absorb(self, command: Command) -> list[Command]:
        """Take a command on its way to the replica; return the commands to send now."""
        match command:
            case CreateDataflow(dataflow) if not self._is_for_client(dataflow):
                owner = self._owner_of(dataflow.export_ids[0])
                as_of, imports = Frontier.at(dataflow.as_of), frozenset(i.id for i in dataflow.index_imports)
                known = not self._known.isdisjoint(dataflow.export_ids)
                group = _Group(owner, as_of, imports, set(dataflow.export_ids), was_known=known)
                self._unhydrated.update(dict.fromkeys(dataflow.export_ids, as_of))
                self._groups.update(dict.fromkeys(dataflow.export_ids, group))
                return [command]
            case Schedule(id) if id in self._groups:
                return self._schedule(self._groups[id], command)
            case AllowCompaction(id, frontier) if frontier.is_empty:
                self._withdraw(id)
                self._unhydrated.pop(id, None)
                self._failing.pop(id, None)
                return [command, *self._finish_export(id, DROPPED)]
            case _:
                return [command]

    def observe(self, response: Response) -> list[Command]:
        """Take a response of the replica; return the commands to send now."""
        if isinstance(response, Frontiers) and response.output is not None:
            as_of = self._unhydrated.get(response.id)
            return self._hydrated(response.id) if as_of is not None and as_of < response.output else []
        if isinstance(response, Failure):
            if response.repeated and not response.stopped:  # the attempt was not begun by this gate's `Schedule`
                return []
            if response.reason == OUT_OF_MEMORY:
                return self._requeue(response.id, str(response.attempts))
            if group := self._groups.get(response.id):
                self._failing[response.id] = group
            return self._finish_export(response.id, FAILED)
        if isinstance(response, Status) and response.kind == "hydration" and response.id in self._groups:
            group = self._groups[response.id]
            progress = hash(frozenset(response.fields.items()))
            group.moved |= group.progress != progress
            group.progress = progress
            group.began |= group.released and response.fields.get("state") == "hydrating"
        return []

    def recorded(self, owners: Collection[str]) -> list[Command]:
        """Release the occupants whose slots are recorded; return their `Schedule` commands."""
        released: list[Command] = []
        for group in self._admitted:
            if group.owner in owners:
                released += self._begin(group)
        return released

    def maintain(self, now_ms: int) -> list[Command]:
        """Find stalled hydrations and fill the slots; called once a second."""
        for group in self._admitted:
            if group.moved or not group.released:
                group.moved, group.moved_ms = False, now_ms
        self._now_ms = now_ms
        return self.admit()

    def admit(self, *, suspects: bool = True) -> list[Command]:
        """Fill the slots; return the commands to send now. `suspects`: whether a suspect may be admitted."""
        released: list[Command] = []
        while (group := self._next(suspects)) is not None:
            del self._waiting[group]
            self._admitted[group] = None
            if not self._policy.recorded:
                released += self._begin(group)
        return released

    def _is_for_client(self, dataflow: DataflowDescription) -> bool:
        """Whether a client waits for it: a subscribe, a copy or a query."""
        return dataflow.is_transient or (dataflow.is_one_shot and not self._is_resource(dataflow.export_ids[0]))

    def _schedule(self, group: _Group, command: Schedule) -> list[Command]:
        if group.released:
            return [command]
        group.schedules.append(command)
        if group.owner in self._resumed and group not in self._admitted:
            self._admitted[group] = None
            return self._begin(group, resumed=True)
        if group not in self._admitted:
            self._waiting[group] = None
        # a replay schedules one dataflow after the other, so one in good standing may still follow a suspect
        return self.admit(suspects=False)

    def _withdraw(self, id: GlobalId) -> None:
        """A `Schedule` that is held back for a dropped export is never sent: the replica would not know the export."""
        if group := self._groups.get(id):
            group.schedules = [schedule for schedule in group.schedules if schedule.id != id]

    def _requeue(self, id: GlobalId, attempt: str) -> list[Command]:
        """Let the dataflow wait again, with all exports that are not hydrated. No dataflow is admitted before the
        caller has recorded the blame."""
        group = self._groups.get(id) or self._failing.get(id)
        if group is None or group in self._waiting:  # hydrated, dropped, or reported by another of its exports
            return []
        for export in [export for export, failing in self._failing.items() if failing is group]:
            del self._failing[export]
            self._groups[export] = group
            group.missing.add(export)
        self._admitted.pop(group, None)
        self._record(group, RAN_OUT)
        self._out_of_memory.append(MemoryExhaustion(group.owner, not self._admitted, attempt))
        group.released = group.was_known = False
        group.outcome, group.moved = "", True
        group.schedules = [Schedule(export) for export in sorted(group.missing)]
        self._waiting[group] = None
        return []

    def _hydrated(self, id: GlobalId) -> list[Command]:
        del self._unhydrated[id]
        group = self._groups.get(id)
        failing = self._failing.pop(id, None)
        if failing is not None and failing is not group and failing not in self._failing.values():
            failing.began = True  # the replica has tried again by itself
            self._record(failing, HYDRATED)
        if group is None:
            return self.admit()
        if group in self._admitted and self._standing(group) is HydrationStanding.SUSPECT and group.missing == {id}:
            self._cleared.append(group.owner)
        return self._finish_export(id, HYDRATED)

    def _next(self, suspects: bool) -> _Group | None:
        """The next dataflow to admit: one in good standing, else a suspect where no other occupant is left."""
        if len(self._admitted) >= MOST_OCCUPANTS:
            return None
        moving = [group for group in self._admitted if group.moved or self._now_ms - group.moved_ms < STALL_MS]
        if len(moving) >= self._policy.concurrency or not all(map(self._is_clear, moving)):
            return None
        for group in self._ready_groups():  # a thousand may wait: look no further than the first
            if self._is_clear(group):
                return group
        if moving or not suspects or not all(map(self._is_clear, self._admitted)):
            return None
        return next(
            (group for group in self._ready_groups() if self._standing(group) is HydrationStanding.SUSPECT), None
        )

    def _ready_groups(self) -> Iterator[_Group]:
        """The dataflows that wait for nothing but a slot, in order."""
        return (group for group in self._waiting if group.imports.isdisjoint(self._unhydrated))

    def _is_clear(self, group: _Group) -> bool:
        return self._standing(group) is HydrationStanding.CLEAR

    def _standing(self, group: _Group) -> HydrationStanding:
        return self._policy.standing(group.owner)

    def _begin(self, group: _Group, resumed: bool = False) -> list[Command]:
        """Release the group: its hydration begins. One that the replica had before the connection may be hydrated, so
        it has begun once the replica tells of its progress."""
        if not group.released:
            group.began, group.began_ms = resumed or not group.was_known, None if resumed else self._policy.clock()
        return self._release(group)

    def _record(self, group: _Group, outcome: str) -> None:
        """The hydration of the group has ended, if it began."""
        if group.began:
            group.began = False
            now_ms = self._policy.clock()
            self._ended(Hydration(group.owner, group.as_of.time, group.began_ms, now_ms, outcome))

    @staticmethod
    def _release(group: _Group) -> list[Command]:
        group.released = True
        schedules, group.schedules = group.schedules, []
        return [*schedules]

    def _finish_export(self, id: GlobalId, outcome: str) -> list[Command]:
        """The export needs its slot no more: it is hydrated, failed or dropped. Returns the commands that follow."""
        group = self._groups.pop(id, None)
        if group is None:
            return []
        group.missing.discard(id)
        group.moved = True
        if outcome != HYDRATED:
            group.outcome = outcome
        if group.missing:
            return self.admit()
        self._record(group, group.outcome or outcome)
        released = self._release(group)
        self._admitted.pop(group, None)
        self._waiting.pop(group, None)
        return released + self.admit()
