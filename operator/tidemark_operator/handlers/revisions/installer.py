"""Installs stored revisions on an instance. It never waits: a replica that connects may be waiting for it.

    inputs held (holds/) ─► as_of ─► Instance.create, which takes holds of its own ─► the hold goes

A dataflow that imports an index is installed after the index's dataflow, and stays only while that is installed: if the
exporter is suspended, the importer waits. A sealed dataflow waits for no index (revision_ends.py).

A pending revision is installed beside the active one, and may only read tables that the active one writes. Once it is
the active one, it is allowed to write, and other revisions of the Dataflow are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter

from tidemark_operator.catalogue.dataflow_state import DataflowState, Obstacle
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.holds.revision_holds import hold_inputs, holder_of
from tidemark_operator.handlers.revisions.as_of_selection import installation_as_of
from tidemark_operator.handlers.revisions.replacement_decision import cannot_run_beside, succession
from tidemark_operator.handlers.revisions.revision_ends import inherited, is_in_question, is_sealed
from tidemark_operator.handlers.revisions.sink_addresses import without_refused
from tidemark_operator.planning.assemble import with_as_of
from tidemark_operator.planning.revision import ActiveRevision, view_shards
from tidemark_protocol.ids import ShardId, WriterTerm

Mark = tuple[DataflowState, ActiveRevision]


async def learn_task_tables(running: RunningInstance, state: DataflowState) -> Obstacle | None:
    """Asks a replica how far the tables of continual tasks are, where no replica has reported it: a task begins exactly
    where its table ends. Returns what keeps the active revision from being installed, as `install` does."""
    book = running.shards
    for description in (mark.revision.description for mark in state.marks):
        if description.continual_task is None:
            continue
        shards = [book.register(s.shard_id, s.location, state.spec.lag_ms) for s in view_shards(description)]
        if unknown := [(shard.id, shard.location) for shard in shards if shard.frontiers is None]:
            try:
                _, found = await running.describe(unknown)
            except Waiting as waiting:
                return _record(state, state.active, Obstacle(str(waiting)))
            running.record_shards(found.shards)
    return None


def install(
    running: RunningInstance, registry: Registry, state: DataflowState, edited: str | None = None
) -> Obstacle | None:
    """Installs the wanted revisions of the Dataflow, and drops its others. `edited`: the Dataflow whose edit has just
    replaced it. Returns, and records, what keeps the active revision from being installed; for the pending one it is
    recorded only."""
    wanted = {state.installation(mark) for mark in state.marks} if state.runs else set()
    for owner in reversed(running.owners()):  # pending ones first: no reader is sent there
        if owner.startswith(f"{state.key.path}/") and owner not in wanted:
            running.drop(owner, _orphaned_tables(running, state, owner), why_dropped(state, edited))
    if not state.runs or state.active is None:
        return None
    obstacle = _install(running, registry, state, state.active)
    _install_pending(running, registry, state)
    return obstacle


def why_dropped(state: DataflowState, edited: str | None = None) -> str:
    """The cause that readers of its tables are told."""
    dataflow = f"Dataflow {state.key.name}"
    if state.spec.suspended:
        return f"{dataflow} is suspended"
    if edited == state.key.name:
        return f"{dataflow} was edited, and its new revision has taken over"
    whose = "of it, or of what it reads" if edited is None else f"of Dataflow {edited}, which it reads"
    return f"A new revision of {dataflow} has taken over, after an edit {whose}"


def _orphaned_tables(running: RunningInstance, state: DataflowState, owner: str) -> set[ShardId]:
    """Tables that this installation wrote and no revision of the Dataflow writes."""
    installed = running.dataflow(owner)
    kept = {s.shard_id for mark in state.marks for s in view_shards(mark.revision.description)}
    return {s.shard_id for s in view_shards(installed.description)} - kept if installed else set()


def restore(running: RunningInstance, registry: Registry) -> None:
    """Installs every revision that can be installed, before a replica is told what the instance has."""
    states = [s for s in registry.dataflows(running.namespace) if s.instance == running.name and s.runs]
    for state, mark in exporters_first([(s, mark) for s in states for mark in s.marks]):
        if mark is state.active:
            _install(running, registry, state, mark)
        else:
            _install_pending(running, registry, state)


def exporters_first(marks: Sequence[Mark]) -> list[Mark]:
    """The exporter of an index before its importers. Ids of indexes name plans, so there are no cycles."""
    exporter = {e.id: n for n, (_, mark) in enumerate(marks) for e in mark.revision.description.index_exports}
    imports = {
        n: {exporter[i.id] for i in mark.revision.description.index_imports if i.id in exporter}
        for n, (_, mark) in enumerate(marks)
    }
    return [marks[n] for n in TopologicalSorter(imports).static_order()]


def _install_pending(running: RunningInstance, registry: Registry, state: DataflowState) -> None:
    if state.pending is None or state.active is None:
        return
    if not cannot_run_beside(state.active.revision, state.pending.mark.revision):
        _install(running, registry, state, state.pending.mark)


def _install(
    running: RunningInstance, registry: Registry, state: DataflowState, mark: ActiveRevision
) -> Obstacle | None:
    """Returns, and records, what keeps the revision from being installed."""
    try:
        _ensure_installed(running, registry, state, mark)
    except Waiting as waiting:
        return _record(state, mark, Obstacle(str(waiting)))
    except Rejected as rejected:
        return _record(state, mark, Obstacle(str(rejected), failed=True, reason=rejected.reason))
    return _record(state, mark, None)


def _record(state: DataflowState, mark: ActiveRevision | None, obstacle: Obstacle | None) -> Obstacle | None:
    others = {m.name: state.installing(m) for m in state.marks if m is not mark}
    if mark is not None:
        others[mark.name] = obstacle
    state.obstacles.installing = {name: each for name, each in others.items() if each is not None}
    return obstacle


def _ensure_installed(running: RunningInstance, registry: Registry, state: DataflowState, mark: ActiveRevision) -> None:
    """Raises Waiting, also while replicas still drop the same revision from before; or Rejected."""
    owner, description = state.installation(mark), mark.revision.description
    lacks_index = not all(running.index(i.id) for i in description.index_imports)
    is_done = all(on.is_gone for c in running.collections_of(owner) for on in c.replicas.values())
    if lacks_index and not (is_done and is_sealed(running, description) and not is_in_question(running, state, mark)):
        hold_inputs(running.shards, state, only=mark)  # it goes on from there once the index is installed again
        running.drop(owner, cause=f"Dataflow {state.key.name} stopped: an index that it imports is not there")
    installed = running.dataflow(owner)
    if (installed is not None and installed.dropped) or (
        installed is None and any(map(running.collection, description.export_ids))
    ):
        raise Waiting("Replacing", "waits until all replicas are done with the same revision from before")
    if installed is None:
        _create(running, registry, state, mark)
        return
    running.set_lag(owner, state.spec.lag_ms)
    if mark is state.active and installed.succession is not None:
        running.take_over(owner, WriterTerm(mark.revision.writer_term))
        running.flush()


def _create(running: RunningInstance, registry: Registry, state: DataflowState, mark: ActiveRevision) -> None:
    book, revision = running.shards, mark.revision
    for shard in view_shards(revision.description):
        book.register(shard.shard_id, shard.location, state.spec.lag_ms)
    sealed = not is_in_question(running, state, mark) and is_sealed(running, revision.description)
    as_of = installation_as_of(running, registry, state, revision.description, sealed)
    beside = None if state.active is None or mark is state.active else succession(state.active.revision, revision)
    dataflow = Dataflow(
        state.installation(mark),
        with_as_of(without_refused(revision.description, registry.allowed_hosts), as_of),
        state.spec.lag_ms,
        beside,
        stays=True,
        finished=sealed,
        inherited=inherited(state, mark),
    )
    running.create_dataflow(dataflow, WriterTerm(revision.writer_term), state.revisions.reached)
    book.release(holder_of(state, mark))
    running.flush()
