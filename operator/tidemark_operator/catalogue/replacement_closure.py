"""The Dataflows that an edit replaces together: the edited one, and each that imports what the edit takes away.

    a (edited) ──index──► b ──index──► c          a', b' and c' run beside a, b and c, and take over at one moment
         ├──table, same columns──► d              d stays: the table still exists
         └──index──► e (ended)                    e stays: it needs its inputs no more

A compute id names a plan, so a new plan has new indexes. A table keeps its id while its columns stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidemark_operator.catalogue.dataflow_state import DataflowState, ReplacementId, RevisionSet
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_protocol.ids import GlobalId


def taken_away(state: DataflowState) -> frozenset[GlobalId]:
    """The collections that the active revision provides and the pending one does not."""
    if state.active is None or state.pending is None:
        return frozenset()
    return state.active.revision.provided - state.pending.mark.revision.provided


def needed_imports(state: DataflowState) -> frozenset[GlobalId]:
    """The collections that the active revision of a Dataflow imports. A revision that ended needs nothing, once its
    pending one is given up."""
    if state.active is None or (state.has_ended and state.pending is None):
        return frozenset()
    return state.active.revision.imported


def closure(root: DataflowState, dataflows: Sequence[DataflowState]) -> list[DataflowState]:
    """The edited Dataflow, then every Dataflow that imports what a member takes away. A member without a pending
    revision takes nothing away yet."""
    members = [root]
    for member in members:
        gone = taken_away(member)
        members += [d for d in dataflows if d not in members and needed_imports(d) & gone]
    return members


def joins(state: DataflowState, dataflows: Iterable[DataflowState]) -> ReplacementId | None:
    """The replacement that takes away what the active revision imports. The first by name of several: the others wait
    for it."""
    mine = needed_imports(state)
    others = [d for d in dataflows if d is not state and d.pending is not None]
    found = [d.pending.replacement for d in others if d.pending is not None and mine & taken_away(d)]
    return min(found, key=lambda t: t.dataflow, default=None)


def as_replaced(dataflows: Iterable[DataflowState], together: ReplacementId | None) -> list[DataflowState]:
    """The Dataflows as they will be once the replacement has taken over; without one, as they are."""
    return [
        replace(d, revisions=RevisionSet(d.pending.mark)) if d.pending and d.pending.replacement == together else d
        for d in dataflows
    ]


def is_stale(revision: DataflowRevision, dataflows: Iterable[DataflowState]) -> bool:
    """Whether the revision imports from a Dataflow what that Dataflow does not provide (any more). The id of an index
    begins with the uid of its Dataflow. A table may be adopted, so its owner is found by the name in its location."""
    tables = _tables_of(revision)
    owners = {id.partition("/")[0] for id in revision.imported}
    exporters = [d for d in dataflows if d.active is not None and (d.uid in owners or d.key.name in tables.values())]
    given = frozenset(id for d in exporters if d.active for id in d.active.revision.provided)
    uids, names = {d.uid for d in exporters}, {d.key.name for d in exporters}
    missing = revision.imported - given
    return any(id.partition("/")[0] in uids or tables.get(id) in names for id in missing)


def _tables_of(revision: DataflowRevision) -> Mapping[GlobalId, str]:
    """The owners' names of the tables that the revision imports from Dataflows, by table. A table is at
    <location>/<namespace>/<name>/<export>/v<n>; where the revision also reads a DataSource of that name, the location
    does not tell which of the two owns the table."""
    read = {parent.name for parent in revision.reads if parent.kind == DATAFLOWS.kind}
    read -= {parent.name for parent in revision.reads if parent.kind != DATAFLOWS.kind}
    shards = [imported.shard for imported in revision.description.source_imports]
    named = {GlobalId(shard.shard_id): f"///{shard.location}".rsplit("/", 3)[1] for shard in shards}
    return {id: name for id, name in named.items() if name in read}


def dependants(state: DataflowState, dataflows: Sequence[DataflowState]) -> set[str]:
    """Names of the Dataflows that read it, directly or through others."""
    found = {state.key.name}
    while more := {d.key.name for d in dataflows if d.key.name not in found and found & _reads(d)}:
        found |= more
    return found - {state.key.name}


def _reads(state: DataflowState) -> set[str]:
    return {parent.name for parent in state.reads if parent.kind == DATAFLOWS.kind}
