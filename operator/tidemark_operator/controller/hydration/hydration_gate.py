"""How many dataflows hydrate at once on one replica: the rest wait, in the order in which they were scheduled.

    absorb(command) -> commands to send now          observe(response) -> commands to send now
    occupants, to be written down ─► recorded(...) -> commands to send now

Only Schedule is ever held back. A dataflow starts once all of its exports are scheduled, so its exports pass the gate
together; its slot frees when each of them has produced output beyond where it began, has failed, or is gone: one that
is refused, or fails again and again, keeps nobody waiting. Nor does one of which nothing has been heard for ten minutes
(its replica may say no more than frontiers): it takes no room any more, but is an occupant still. One gate belongs to
one connection: it begins empty but for who was in a slot of this very process before, and what the replica has hydrated
already frees its slot with the first report. Queries, subscribes and copies pass at once: somebody waits.

Who is suspected of killing replicas is admitted when nobody else waits, and shares the replica with no other hydration;
who is quarantined, not at all. What imports an index waits for the index to be hydrated on this very replica: in a slot
it could do nothing before that, and would keep a suspect it depends on from its turn.

Where nothing is heard of a suspect for ten minutes, those in good standing begin beside it: if it kills the replica
after all, they die with it once, and are suspects then. Suspects wait for each other for an hour: while two share a
replica, no death says whose fault it was. That must come to an end, so whoever was waited for in vain is let in after
all other suspects by the next process, and is waited for twice as long there: its time to kill is passed at last, and
it is alone. Nor do suspects wait for ever while others keep coming: after an hour one of them is next.

Who runs out of memory there, while the replica lives on, leaves its slot, waits for another one, and is scheduled once
more: until then the replica leaves it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from tidemark_operator.controller.hydration.quarantine import Precautions, Standing
from tidemark_operator.controller.reports.status_validation import DIGITS
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import AllowCompaction, Command, CreateDataflow, Schedule
from tidemark_protocol.messages.responses import Frontiers, Response, Status
from tidemark_protocol.plan.dataflow import DataflowDescription

PATIENCE_MS = 600_000
SUSPECTS_PATIENCE_MS = 3_600_000
MOST_DOUBLINGS = 12
"""Ten minutes become a month."""
SUSPECTS_LOOK_MS = 60_000
MOST_OCCUPANTS = 64
"""Also of those that nobody waits for: so many can be written down, and nobody is scheduled who is not."""
_STUCK = ("refused", "fenced")
_OUT_OF_MEMORY = "OutOfMemory"


@dataclass(frozen=True)
class RanOut:
    """Of memory, while it was hydrating. `alone`: nobody else was in a slot; `attempt`: by the replica's count."""

    owner: str
    alone: bool
    attempt: str


@dataclass(frozen=True)
class Outwaited:
    """A suspect of which nothing was heard for as long as it is waited for: now so many times."""

    owner: str
    times: int


@dataclass(eq=False)
class _Group:
    """The exports of one dataflow, and those that have not hydrated. `imports`: indexes. `admitted`: it is in a slot;
    `released`: that is written down, so it may be scheduled. `progress`: a hash of what was last said of it, which may
    be megabytes of lies; `moved`: since it was last looked at; `still_ms`: for how long it had not, then. `outwaited`:
    how often it had been, when it was admitted; `told`: that it is once more."""

    owner: str
    as_of: Frontier
    imports: frozenset[GlobalId]
    missing: set[GlobalId]
    held: list[Schedule] = field(default_factory=list)
    admitted: bool = False
    released: bool = False
    progress: int | None = None
    moved: bool = True
    moved_ms: int = 0
    still_ms: int = 0
    outwaited: int = 0
    told: bool = False

    def waits(self, patience_ms: int) -> bool:
        """Whether it is waited for still."""
        return self.still_ms < patience_ms << min(self.outwaited, MOST_DOUBLINGS)


class HydrationGate:
    """`owner_of` tells whose an export is. `inside`: owners that this process of the replica is hydrating already.
    `stays`: whether it is of a resource, whatever it looks like: one that ends may have but one time."""

    def __init__(
        self,
        precautions: Precautions | None = None,
        owner_of: Callable[[GlobalId], str] = str,
        inside: Collection[str] = (),
        stays: Callable[[GlobalId], bool] = lambda id: False,
    ) -> None:
        self._precautions, self._owner_of, self._inside = precautions or Precautions(), owner_of, frozenset(inside)
        self._stays = stays
        self._groups: dict[GlobalId, _Group] = {}
        self._admitted: dict[_Group, None] = {}  # in order, both
        self._waiting: dict[_Group, None] = {}
        self._cleared: list[str] = []
        self._ran_out: list[RanOut] = []
        self._outwaited: list[Outwaited] = []
        self._suspects_looked_ms: int | None = None
        self._suspects_waited_ms = 0
        """For how long one could have begun, but for those in good standing."""
        self._failing: dict[GlobalId, _Group] = {}
        """Exports that have failed, and keep nobody waiting."""
        self._lacking: dict[GlobalId, Frontier] = {}
        """Exports that are not hydrated here, also where that failed, and the as_of that their output is to pass."""

    @property
    def occupants(self) -> tuple[str, ...]:
        """Owners in a slot, in the order in which they were admitted."""
        return tuple(group.owner for group in self._admitted)

    def cleared(self) -> list[str]:
        """Suspects that have hydrated since this was last asked."""
        cleared, self._cleared = self._cleared, []
        return cleared

    def ran_out(self) -> list[RanOut]:
        """Who ran out of memory since this was last asked. They are let in again by `admit`, once blamed."""
        ran_out, self._ran_out = self._ran_out, []
        return ran_out

    def outwaited(self) -> list[Outwaited]:
        """Who is so since this was last asked."""
        outwaited, self._outwaited = self._outwaited, []
        return outwaited

    @property
    def waiting(self) -> int:
        """Dataflows that are scheduled and have no slot yet."""
        return len(self._waiting)

    def is_waiting(self, id: GlobalId) -> bool:
        """Whether an export is of one of them."""
        group = self._groups.get(id)
        return group is not None and group in self._waiting

    def absorb(self, command: Command) -> list[Command]:
        """A command on its way to the replica."""
        match command:
            case CreateDataflow(dataflow) if not self._is_awaited(dataflow):
                owner = self._owner_of(dataflow.export_ids[0])
                as_of, imports = Frontier.at(dataflow.as_of), frozenset(i.id for i in dataflow.index_imports)
                group = _Group(owner, as_of, imports, set(dataflow.export_ids))
                self._lacking.update(dict.fromkeys(dataflow.export_ids, as_of))
                self._groups.update(dict.fromkeys(dataflow.export_ids, group))
                return [command]
            case Schedule(id) if id in self._groups:
                return self._schedule(self._groups[id], command)
            case AllowCompaction(id, frontier) if frontier.is_empty:
                self._forget(id)
                self._lacking.pop(id, None)
                self._failing.pop(id, None)
                return [command, *self._done(id)]
            case _:
                return [command]

    def observe(self, response: Response) -> list[Command]:
        """A response on its way to the controller."""
        if isinstance(response, Frontiers) and response.output is not None:
            as_of = self._lacking.get(response.id)
            return self._hydrated(response.id) if as_of is not None and as_of < response.output else []
        if isinstance(response, Status) and (response.kind in _STUCK or response.kind.endswith("_failed")):
            if response.fields.get("reason") == _OUT_OF_MEMORY:
                return self._once_more(response.id, response.fields.get("failures", "")[:DIGITS])
            if group := self._groups.get(response.id):
                self._failing[response.id] = group
            return self._done(response.id)
        if isinstance(response, Status) and response.kind == "hydration" and response.id in self._groups:
            group = self._groups[response.id]
            progress = hash(frozenset(response.fields.items()))
            group.moved |= group.progress != progress
            group.progress = progress
        return []

    def recorded(self, owners: Collection[str]) -> list[Command]:
        """It is written down that these are in their slots."""
        released: list[Command] = []
        for group in self._admitted:
            if group.owner in owners:
                released += self._release(group)
        return released

    def look(self, now_ms: int) -> list[Command]:
        """Now and then: whoever has not moved for long keeps nobody waiting any more, until it moves."""
        for group in self._admitted:
            if group.moved or not group.released:
                group.moved, group.moved_ms = False, now_ms
            group.still_ms = now_ms - group.moved_ms
            if not (group.told or group.waits(PATIENCE_MS)) and self._standing(group) is Standing.SUSPECT:
                group.told = True
                self._outwaited.append(Outwaited(group.owner, group.outwaited + 1))
        self._look_at_suspects(now_ms)
        return self.admit()

    def _look_at_suspects(self, now_ms: int) -> None:
        """Not with every look: a thousand may wait."""
        before_ms = self._suspects_looked_ms
        if before_ms is not None and now_ms - before_ms < SUSPECTS_LOOK_MS:
            return
        self._suspects_looked_ms = now_ms
        kept = before_ms is not None and not self._is_another_suspect_here() and self._first_suspect() is not None
        self._suspects_waited_ms = self._suspects_waited_ms + now_ms - (before_ms or 0) if kept else 0

    def admit(self, *, suspects: bool = True) -> list[Command]:
        """Whoever may begin now does: a slot is free, or a standing has changed."""
        released: list[Command] = []
        while (group := self._next(suspects)) is not None:
            del self._waiting[group]
            self._admitted[group] = None
            group.admitted = True
            if self._standing(group) is Standing.SUSPECT:
                group.outwaited, self._suspects_waited_ms = self._precautions.outwaited(group.owner), 0
            if not self._precautions.recorded:
                released += self._release(group)
        return released

    def _is_awaited(self, dataflow: DataflowDescription) -> bool:
        """Whether somebody waits for it: it is there for a client."""
        return dataflow.is_transient or (dataflow.is_one_shot and not self._stays(dataflow.export_ids[0]))

    def _schedule(self, group: _Group, command: Schedule) -> list[Command]:
        if group.released:
            return [command]
        group.held.append(command)
        if group.owner in self._inside and not group.admitted:
            group.admitted = True
            self._admitted[group] = None
            return self._release(group)
        if not group.admitted:
            self._waiting[group] = None
        # a replay tells of one after the other, so those who go before suspects may come yet
        return self.admit(suspects=False)

    def _forget(self, id: GlobalId) -> None:
        """A Schedule that was held back for what is dropped now is never sent: it would name what is not there."""
        if group := self._groups.get(id):
            group.held = [schedule for schedule in group.held if schedule.id != id]

    def _once_more(self, id: GlobalId, attempt: str) -> list[Command]:
        """It waits again, with all of its exports that are not hydrated. Nobody is let in at once: not before whose
        fault it may be is known."""
        group = self._groups.get(id) or self._failing.get(id)
        if group is None or group in self._waiting:  # hydrated, dropped, or another export of it has told
            return []
        for export in [export for export, failing in self._failing.items() if failing is group]:
            del self._failing[export]
            self._groups[export] = group
            group.missing.add(export)
        self._admitted.pop(group, None)
        self._ran_out.append(RanOut(group.owner, not self._admitted, attempt))
        group.admitted = group.released = False
        group.moved, group.still_ms, group.told = True, 0, False
        group.held = [Schedule(export) for export in sorted(group.missing)]
        self._waiting[group] = None
        return []

    def _hydrated(self, id: GlobalId) -> list[Command]:
        del self._lacking[id]
        self._failing.pop(id, None)
        group = self._groups.get(id)
        if group is None:
            return self.admit()
        if group.admitted and self._standing(group) is Standing.SUSPECT and group.missing == {id}:
            self._cleared.append(group.owner)
        return self._done(id)

    def _next(self, suspects: bool) -> _Group | None:
        """Those in good standing first, several at a time; then suspects, one at a time."""
        if len(self._admitted) >= MOST_OCCUPANTS:
            return None
        hydrating = [group for group in self._admitted if group.waits(PATIENCE_MS)]
        if any(self._standing(group) is not Standing.CLEAR for group in hydrating):
            return None
        if len(hydrating) >= self._precautions.concurrency:
            return None
        if self._suspects_waited_ms < SUSPECTS_PATIENCE_MS or self._first_suspect() is None:
            for group in self._ready():  # not further than need be: a thousand may wait, and each that is done asks
                if self._standing(group) is Standing.CLEAR:
                    return group
        waits = hydrating or not suspects or self._is_another_suspect_here()
        return None if waits else self._first_suspect()

    def _first_suspect(self) -> _Group | None:
        """Whoever was waited for in vain comes after those that were not."""
        suspects = (group for group in self._ready() if self._standing(group) is Standing.SUSPECT)
        return min(suspects, key=lambda group: self._precautions.outwaited(group.owner), default=None)

    def _ready(self) -> Iterator[_Group]:
        """Those that wait for a slot alone, in order."""
        return (group for group in self._waiting if group.imports.isdisjoint(self._lacking))

    def _is_another_suspect_here(self) -> bool:
        there = (group for group in self._admitted if group.waits(SUSPECTS_PATIENCE_MS))
        return any(self._standing(group) is not Standing.CLEAR for group in there)

    def _standing(self, group: _Group) -> Standing:
        return self._precautions.standing(group.owner)

    @staticmethod
    def _release(group: _Group) -> list[Command]:
        group.released = True
        held, group.held = group.held, []
        return [*held]

    def _done(self, id: GlobalId) -> list[Command]:
        group = self._groups.pop(id, None)
        if group is None:
            return []
        group.missing.discard(id)
        group.moved = True
        if group.missing:
            return self.admit()
        released = self._release(group)
        self._admitted.pop(group, None)
        self._waiting.pop(group, None)
        return released + self.admit()
