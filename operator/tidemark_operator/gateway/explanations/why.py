"""What holds a frontier back: from a relation down to the input, replica or condition that it waits for.

    delays.by-carrier            complete before 12:00:01
      ├─ replica r1              has taken in all that its inputs have        not the reason
      └─ flights.arrivals        complete before 12:00:01                     the furthest behind: the reason
           └─ DataSource flights ingests on replica r1

A relation cannot be further than its slowest input. Where it is as far, that input is the reason, and is asked in turn;
where it is not, the replicas are: the furthest of them decides, and what it says of itself is the reason.

Pure: `Seen` is what is known of each relation at one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_operator.errors import QueryRefused
from tidemark_operator.resources.conditions.frontier import date
from tidemark_operator.resources.manifest.durations import duration_text
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.refresh import RefreshSchedule


@dataclass(frozen=True)
class SeenReplica:
    """A relation on a replica; `trouble`: what the replica says keeps it from going on."""

    name: str
    input: Frontier | None
    output: Frontier | None
    write: Frontier | None
    hydrated: bool
    trouble: str = ""


@dataclass(frozen=True)
class Seen:
    """A relation: how far it is, what it is computed from, and on which replicas. `obstacle`: the condition of its
    object that does not hold, if one keeps it from running at all; `runs`: where it does, in words. `refresh`: when it
    is brought up to date, where that is not at every time; `until`: from when on there is nothing of it."""

    name: str
    kind: str
    write: Frontier | None
    inputs: tuple[str, ...] = ()
    replicas: tuple[SeenReplica, ...] = ()
    obstacle: str = ""
    runs: str = ""
    refresh: RefreshSchedule | None = None
    until: Time | None = None

    def next_refresh(self, time: int) -> Time | None:
        """The first at or after `time`; None where there is none any more."""
        found = None if self.refresh is None else self.refresh.next(time)
        return None if found is None or (self.until is not None and found >= self.until) else found


@dataclass(frozen=True)
class Cause:
    """One thing on the way to the reason. `holds`: it, or something of what is below it, is what holds back."""

    subject: str
    kind: str
    write: Frontier | None
    says: str
    holds: bool
    because: tuple[Cause, ...] = ()


def why(name: str, seen: Mapping[str, Seen]) -> list[Cause]:
    """Of every relation that the name means: `a.b`, or all of `a`. Raises QueryRefused for a name of nothing."""
    subjects = [s for s in seen if s == name or s.partition(".")[0] == name]
    if not subjects:
        raise QueryRefused(f"there is no Dataflow or DataSource {name}, and no export or table of this name")
    return [_relation(seen[subject], seen, holds=True, path=()) for subject in sorted(subjects)]


def _relation(of: Seen, seen: Mapping[str, Seen], *, holds: bool, path: tuple[str, ...]) -> Cause:
    """`path`: relations above, so that a task that reads itself comes to an end."""
    if of.obstacle:
        return Cause(of.name, of.kind, of.write, of.obstacle, holds)
    if of.write is not None and of.write.is_empty:
        return Cause(of.name, of.kind, of.write, "is finished: nothing will change any more", False)
    if not of.inputs and not of.replicas:
        return Cause(of.name, of.kind, of.write, of.runs or "nobody has reported how far it is", holds)
    inputs = [seen[i] for i in of.inputs if i in seen and i not in (*path, of.name)]
    slowest = min(inputs, key=_reach, default=None)
    waits = slowest is not None and _is_as_far(of, slowest)
    if path and not holds:
        return Cause(of.name, of.kind, of.write, _says(of, slowest, waits), False)
    below = [_relation(i, seen, holds=holds and waits and i is slowest, path=(*path, of.name)) for i in inputs]
    lead = max(of.replicas, key=lambda r: _key(r.write), default=None)
    below += [_replica(r, of, slowest, holds=holds and not waits and r is lead) for r in of.replicas]
    return Cause(of.name, of.kind, of.write, _says(of, slowest, waits), holds, tuple(below))


def _says(of: Seen, slowest: Seen | None, waits: bool) -> str:
    if not of.replicas:
        return "no replica has it"
    if waits and slowest is not None:
        return f"has everything that {slowest.name} has{_refreshes(of)}"
    return f"its inputs are further than it is{_refreshes(of)}"


def _refreshes(of: Seen) -> str:
    """How often, and the refreshes before and after where the table is complete, if that is known; empty where it
    is brought up to date at every time."""
    if of.refresh is None:
        return ""
    every = of.refresh.every_ms
    said = "refreshes" + (f" every {duration_text(every)}" if every is not None else " at given times")
    if of.write is None or of.write.time is None:
        return f"; {said}"
    last, ahead = of.refresh.last(of.write.time - 1), of.next_refresh(of.write.time)
    said += f", the last one planned was at {date(last)}" if last is not None else ""
    return f"; {said}, " + (f"the next at {date(ahead)}" if ahead is not None else "and not again")


def _replica(on: SeenReplica, of: Seen, slowest: Seen | None, *, holds: bool) -> Cause:
    return Cause(f"replica {on.name}", "replica", on.write, _replica_says(on, of, slowest), holds)


def _replica_says(on: SeenReplica, of: Seen, slowest: Seen | None) -> str:
    if on.trouble:
        return on.trouble
    if not on.hydrated:
        return "hydrates: it computes the beginning"
    if of.refresh is not None and slowest is not None and _key(on.write) >= _reach(slowest):
        return "has nothing to do before the next refresh"
    if slowest is not None and of.refresh is not None and not _is_due(on, of, slowest):
        return (
            "has nothing to compute before the next refresh, and is to write that nothing changes until then: the "
            "table's storage is slower, or another replica writes"
        )
    if slowest is not None and _key(on.input) < _reach(slowest):
        return "has not taken in yet what its inputs have: its steps are slower, or wait for their turn"
    if _key(on.write) < _key(on.output):
        return "has computed more than is written: the table's storage is slower, or another replica writes"
    return "has taken in all that its inputs have"


def _is_due(on: SeenReplica, of: Seen, slowest: Seen) -> bool:
    """Whether there is a refresh that the inputs are past, and the replica is not."""
    if on.input is None or on.input.time is None:
        return on.input is None
    ahead = of.next_refresh(on.input.time)
    return ahead is not None and ahead < _reach(slowest)


def _is_as_far(of: Seen, slowest: Seen) -> bool:
    return bool(of.replicas) and _key(of.write) >= _reach(slowest)


def _reach(of: Seen) -> int:
    return _key(of.write)


def _key(frontier: Frontier | None) -> int:
    """Unknown is before everything."""
    return -1 if frontier is None else frontier.encode()
