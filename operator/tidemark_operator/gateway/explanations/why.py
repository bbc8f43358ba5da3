"""The reason that holds a relation's frontier back: an input, a replica or a condition.

    delays.by-carrier            complete before 12:00:01
      ├─ replica r1              has read everything that its inputs have     not the reason
      └─ flights.arrivals        complete before 12:00:01                     the furthest behind: the reason
           └─ DataSource flights ingests on replica r1

A relation's frontier cannot pass its slowest input's. Where both are equal, that input is the reason, and the search
goes on there. Otherwise the replica with the furthest frontier is, and its state is the reason.

Pure: computed from a RelationSnapshot of each relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark_operator.controller.reports.catch_up import CatchUp
from tidemark_operator.errors import QueryRefused
from tidemark_operator.resources.conditions.frontier import date
from tidemark_operator.resources.manifest.durations import duration_text
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_protocol.pb.gateway_pb2 import Cause
from tidemark_protocol.plan.refresh import RefreshSchedule


@dataclass(frozen=True)
class ReplicaSnapshot:
    """A relation on one replica. `failure`: what the replica reports as keeping it from progress. `busy`: what else the
    replica does. `catching_up`: how far it is, where it catches up in steps of bounded rows."""

    name: str
    input: Frontier | None
    output: Frontier | None
    write: Frontier | None
    hydrated: bool
    failure: str = ""
    busy: str = ""
    catching_up: CatchUp | None = None


@dataclass(frozen=True)
class RelationSnapshot:
    """A relation: its write frontier, its inputs' names, and its state on each replica.

    `obstacle`: the condition of its object that keeps it from running; empty: none does. `runs`: where it runs, as
    text. `refresh`: its refresh times, where it is not kept up to date at all times. `until`: the time from which it is
    empty. `leases`: which leases keep it readable from before its read policy, as text.
    """

    name: str
    kind: str
    write: Frontier | None
    inputs: tuple[str, ...] = ()
    replicas: tuple[ReplicaSnapshot, ...] = ()
    obstacle: str = ""
    runs: str = ""
    refresh: RefreshSchedule | None = None
    until: Time | None = None
    leases: str = ""

    def next_refresh(self, time: int) -> Time | None:
        """The first refresh at or after `time`; None: there is no further one."""
        found = None if self.refresh is None else self.refresh.next(time)
        return None if found is None or (self.until is not None and found >= self.until) else found


def find_causes(name: str, snapshots: Mapping[str, RelationSnapshot]) -> list[Cause]:
    """An explanation for each relation that the name means: `a.b`, or all of `a`.

    Raises:
        QueryRefused: no relation has this name.
    """
    subjects = [s for s in snapshots if s == name or s.partition(".")[0] == name]
    if not subjects:
        raise QueryRefused(f"there is no Dataflow, DataSource, export or table {name}")
    return [_with_leases(snapshots[subject], snapshots) for subject in sorted(subjects)]


def _with_leases(of: RelationSnapshot, snapshots: Mapping[str, RelationSnapshot]) -> Cause:
    cause = _relation(of, snapshots, holds=True, path=())
    cause.says += f"; {of.leases}" if of.leases else ""
    return cause


def _relation(
    of: RelationSnapshot, snapshots: Mapping[str, RelationSnapshot], *, holds: bool, path: tuple[str, ...]
) -> Cause:
    """`path`: the relations above, which ends the recursion for a task that reads its own table."""
    if of.obstacle:
        return _cause(of.name, of.kind, of.write, of.obstacle, holds)
    if of.write is not None and of.write.is_empty:
        return _cause(of.name, of.kind, of.write, "is finished: it will not change any more", False)
    if not of.inputs and not of.replicas:
        return _cause(of.name, of.kind, of.write, of.runs or "no replica has reported its frontier", holds)
    inputs = [snapshots[i] for i in of.inputs if i in snapshots and i not in (*path, of.name)]
    slowest = min(inputs, key=lambda each: _key(each.write), default=None)
    waits = slowest is not None and bool(of.replicas) and _key(of.write) >= _key(slowest.write)
    if path and not holds:
        return _cause(of.name, of.kind, of.write, _says(of, slowest, waits), False)
    below = [_relation(i, snapshots, holds=holds and waits and i is slowest, path=(*path, of.name)) for i in inputs]
    lead = max(of.replicas, key=lambda r: _key(r.write), default=None)
    below += [_replica(r, of, slowest, holds=holds and not waits and r is lead) for r in of.replicas]
    return _cause(of.name, of.kind, of.write, _says(of, slowest, waits), holds, below)


def _cause(
    subject: str, kind: str, write: Frontier | None, says: str, holds: bool, because: Iterable[Cause] = ()
) -> Cause:
    """A node of the explanation. `holds`: this node, or one below it, holds the frontier back."""
    time = None if write is None else write.encode()
    return Cause(subject=subject, kind=kind, write=time, says=says, holds=holds, because=because)


def _says(of: RelationSnapshot, slowest: RelationSnapshot | None, waits: bool) -> str:
    if not of.replicas:
        return "no replica has it"
    if waits and slowest is not None:
        return f"has everything that {slowest.name} has{_refreshes(of)}"
    return f"its inputs are further than it is{_refreshes(of)}"


def _refreshes(of: RelationSnapshot) -> str:
    """The refresh interval, and the refreshes before and after the write frontier; empty for a relation without a
    refresh schedule."""
    if of.refresh is None:
        return ""
    every = of.refresh.every_ms
    text = "refreshes" + (f" every {duration_text(every)}" if every is not None else " at given times")
    if of.write is None or of.write.time is None:
        return f"; {text}"
    last, ahead = of.refresh.last(of.write.time - 1), of.next_refresh(of.write.time)
    text += f", the last one planned was at {date(last)}" if last is not None else ""
    return f"; {text}, " + (f"the next at {date(ahead)}" if ahead is not None else "and not again")


def _replica(on: ReplicaSnapshot, of: RelationSnapshot, slowest: RelationSnapshot | None, *, holds: bool) -> Cause:
    says = _replica_says(on, of, slowest) + (f"; it is busy: {on.busy}" if on.busy else "")
    return _cause(f"replica {on.name}", "replica", on.write, says, holds)


def _replica_says(on: ReplicaSnapshot, of: RelationSnapshot, slowest: RelationSnapshot | None) -> str:
    if on.failure:
        return on.failure
    if not on.hydrated:
        return "is hydrating: it computes its first contents"
    if of.refresh is not None and slowest is not None and _key(on.write) >= _key(slowest.write):
        return "has nothing to do before the next refresh"
    if slowest is not None and of.refresh is not None and not _is_due(on, of, slowest):
        return (
            "has nothing to compute before the next refresh, and has not written yet that nothing changes "
            "until then: the "
            "table's storage is slow, or another replica writes"
        )
    if slowest is not None and _key(on.input) < _key(slowest.write) and (behind := on.catching_up) is not None:
        goal = "" if behind.goal.time is None else f" before {date(behind.goal.time)}"
        return (
            f"catches up in steps of bounded rows: {behind.percent}% of what it was behind is computed, about "
            f"{behind.updates:,} updates{goal} are left"
        )
    if slowest is not None and _key(on.input) < _key(slowest.write):
        return "has not read everything that its inputs have: its steps are slow, or wait for their turn"
    if _key(on.write) < _key(on.output):
        return "has computed more than it has written: the table's storage is slow, or another replica writes"
    return "has read everything that its inputs have"


def _is_due(on: ReplicaSnapshot, of: RelationSnapshot, slowest: RelationSnapshot) -> bool:
    """Whether the inputs are past a refresh that the replica has not reached."""
    if on.input is None or on.input.time is None:
        return on.input is None
    ahead = of.next_refresh(on.input.time)
    return ahead is not None and ahead < _key(slowest.write)


def _key(frontier: Frontier | None) -> int:
    """An unknown frontier sorts before every other."""
    return -1 if frontier is None else frontier.encode()
