"""What must be replaced together: a Dataflow that is edited, and all that import what the edit takes away.

    a (edited) ──index──► b ──index──► c          a', b' and c' run beside a, b and c, and take over at one moment
         ├──table, same columns──► d              d is not touched: the table is still there
         └──index──► e (its end has passed)       nor is e, which needs nothing of what it read any more

A compute id names a plan, so whatever is planned anew has other indexes; a table keeps its id while its columns stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidemark_operator.catalogue.registry import DataflowState, Together
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_protocol.ids import GlobalId


def taken_away(state: DataflowState) -> frozenset[GlobalId]:
    """What the active revision provides and the pending one does not."""
    if state.active is None or state.pending is None:
        return frozenset()
    return state.active.revision.provided - state.pending.mark.revision.provided


def needed(state: DataflowState) -> frozenset[GlobalId]:
    """What its active revision imports, and must be there. One that is over gives up what is pending of it first."""
    if state.active is None or (state.is_over and state.pending is None):
        return frozenset()
    return state.active.revision.imported


def closure(root: DataflowState, dataflows: Sequence[DataflowState]) -> list[DataflowState]:
    """The edited one, then whatever imports what is taken away, as far as it is known: what is not planned anew yet
    takes nothing away."""
    members = [root]
    for member in members:
        gone = taken_away(member)
        members += [d for d in dataflows if d not in members and needed(d) & gone]
    return members


def joins(state: DataflowState, dataflows: Iterable[DataflowState]) -> Together | None:
    """The replacement that takes away what its active revision imports; of several the first by name: the others wait
    for it."""
    mine = needed(state)
    others = [d for d in dataflows if d is not state and d.pending is not None]
    found = [d.pending.together for d in others if d.pending is not None and mine & taken_away(d)]
    return min(found, key=lambda t: t.dataflow, default=None)


def as_replaced(dataflows: Iterable[DataflowState], together: Together | None) -> list[DataflowState]:
    """The Dataflows as they will be once the replacement has taken over; without one, as they are."""
    return [
        replace(d, active=d.pending.mark, pending=None) if d.pending and d.pending.together == together else d
        for d in dataflows
    ]


def is_stale(revision: DataflowRevision, dataflows: Iterable[DataflowState]) -> bool:
    """Whether it imports of a Dataflow what that does not provide (any more). An index has the uid of its Dataflow in
    its id; a table may be an adopted one, and is found by the name in its address."""
    tables = _tables_of(revision)
    owners = {id.partition("/")[0] for id in revision.imported}
    there = [d for d in dataflows if d.active is not None and (d.uid in owners or d.key.name in tables.values())]
    given = frozenset(id for d in there if d.active for id in d.active.revision.provided)
    uids, names = {d.uid for d in there}, {d.key.name for d in there}
    missing = revision.imported - given
    return any(id.partition("/")[0] in uids or tables.get(id) in names for id in missing)


def _tables_of(revision: DataflowRevision) -> Mapping[GlobalId, str]:
    """Of the tables that it imports of Dataflows, their names: <location>/<namespace>/<name>/<export>/v<n>. Where it
    also reads a DataSource of that name, the address does not tell."""
    read = {parent.name for parent in revision.reads if parent.kind == DATAFLOWS.kind}
    read -= {parent.name for parent in revision.reads if parent.kind != DATAFLOWS.kind}
    shards = [imported.shard for imported in revision.description.source_imports]
    named = {GlobalId(shard.shard_id): f"///{shard.location}".rsplit("/", 3)[1] for shard in shards}
    return {id: name for id, name in named.items() if name in read}


def dependants(state: DataflowState, dataflows: Sequence[DataflowState]) -> set[str]:
    """Names of all that read it, also through others."""
    found = {state.key.name}
    while more := {d.key.name for d in dataflows if d.key.name not in found and found & _reads(d)}:
        found |= more
    return found - {state.key.name}


def _reads(state: DataflowState) -> set[str]:
    return {parent.name for parent in state.reads if parent.kind == DATAFLOWS.kind}
