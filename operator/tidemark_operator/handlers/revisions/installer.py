"""Installing stored revisions on an instance. Never waits: a replica that reconnects is waiting for it.

    stored hold (inputs stay as they are) ─► as_of ─► Instance.create (its own holds) ─► stored hold goes

What imports an index is installed after what exports it, and only while that is there: a Dataflow whose exporter is
suspended waits with it; but what is over waits for nothing (`is_over`). The stored hold is taken as soon as a revision
is known, so that between an operator's start and the installation, or while a Dataflow is suspended, or an index that
it imports is not there, nothing of its shards is compacted that it will read.

A pending revision is installed beside the active one, read-only where that one writes; when it has become the active
one, it is told that it may write, and whatever else there is of the Dataflow is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter

from tidemark_operator.catalogue.registry import DataflowState, Registry
from tidemark_operator.catalogue.relations import names
from tidemark_operator.controller.frontiers.as_of import AsOfRequest, Input, select_as_of, sinces
from tidemark_operator.controller.frontiers.dataflow_end import end_of, has_passed
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.future_reports import FrontierPair
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.replicas.excluded_dataflows import tables_of
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.revisions.replacement_decision import cannot_run_beside, succession
from tidemark_operator.handlers.revisions.superseded_revision import inherited, is_in_question, is_outrun, may_be_told
from tidemark_operator.planning.assemble import at
from tidemark_operator.planning.revision import ActiveRevision, view_shards
from tidemark_operator.resources.conditions.dataflow import PlanRefused
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.plan.dataflow import DataflowDescription

Mark = tuple[DataflowState, ActiveRevision]


def hold_stored(book: ShardBook, state: DataflowState, only: ActiveRevision | None = None) -> None:
    """Whatever its revisions read stays as it is until they are installed; but what is over reads nothing."""
    for mark in state.marks if only is None else (only,):
        description, holder = mark.revision.description, _stored(state, mark)
        for shard in view_shards(description):
            book.register(shard.shard_id, shard.location, state.lag_ms)
        if mark.name == state.over:
            continue
        if description.continual_task is not None:  # it goes on from what its own table holds
            for shard in view_shards(description):
                book.hold(shard.shard_id, holder, Frontier.minimum())
        for source in description.source_imports:
            book.register(source.shard.shard_id, source.shard.location)
            book.hold(source.shard.shard_id, holder, Frontier.minimum())


def retire(book: ShardBook, state: DataflowState, old: ActiveRevision) -> None:
    """A revision is wanted no more: its hold goes, and nobody looks after tables that no other one writes."""
    book.release(_stored(state, old))
    kept = {s.shard_id for mark in state.marks if mark is not old for s in view_shards(mark.revision.description)}
    for shard in view_shards(old.revision.description):
        if shard.shard_id not in kept:
            book.forget(shard.shard_id)


def forget_stored(book: ShardBook, state: DataflowState) -> None:
    """The Dataflow is gone, and all that was wanted of it."""
    marks, state.active, state.pending = state.marks, None, None
    for mark in marks:
        retire(book, state, mark)


def choose_as_of(
    running: RunningInstance, registry: Registry, state: DataflowState, description: DataflowDescription, first: bool
) -> Time:
    """Where the dataflow begins; raises Waiting or Rejected. `first`: it was never stored before."""
    book = running.shards
    sinks = [f.upper for shard in view_shards(description) if (f := book.frontiers(shard.shard_id))]
    # of what is edited, a view with another plan has a table of its own; a task that has ended keeps what it wrote, and
    # what is adopted is kept
    keeps = not first or state.active is None or description.continual_task is not None
    marks = (mark for mark in state.marks if mark.revision.description is description)
    in_question = any(is_in_question(running, state, mark) for mark in marks)
    sealed = keeps and not in_question and is_sealed(running, description)
    inputs = _inputs(running, registry, state, description, sealed)
    # one that goes on, also of an earlier Dataflow, may leave out no time; of an edit that is seen when it is installed
    goes_on = not first or (state.active is None and any(upper > Frontier.minimum() for upper in sinks))
    exact = description.continual_task is not None and goes_on
    goes_on_at = running_sinces(description, [r.description for r in running.replicas.values() if r.description])
    if exact and not sinks and not goes_on_at:  # where one has it, its since is behind its table
        raise Waiting("WaitingForInput", "waiting for a replica to report how far its own table is")
    return select_as_of(
        AsOfRequest(
            inputs=inputs,
            sinks=tuple(upper for upper in sinks if upper > Frontier.minimum()),
            stored=None if first else description.as_of,
            running=tuple(goes_on_at),
            requested=None if state.requested_as_of is None else Time(state.requested_as_of),
            exact=exact,
            until=description.until,
            sealed=sealed,
            unsure=not first and not sealed and _may_be_finished(running, description),
        )
    )


def _inputs(
    running: RunningInstance,
    registry: Registry,
    state: DataflowState,
    description: DataflowDescription,
    sealed: bool = False,
) -> tuple[Input, ...]:
    """What it reads, as far as it is known; raises Waiting where an index is not there, unless nobody reads it."""
    known = import_names(registry, state.key.namespace, description)
    inputs = []
    for source in description.source_imports:
        shard = running.shards.register(source.shard.shard_id, source.shard.location)
        inputs.append(Input(known.get(source.id, source.shard.location), shard.readable, shard.error))
    for index in description.index_imports:
        collection = running.index(index.id)
        if collection is None and sealed:
            continue
        if collection is None:
            raise Waiting("WaitingForInput", f"waits for the index {known.get(index.id, index.id)} to be installed")
        readable = FrontierPair(collection.write or Frontier.minimum(), collection.since)
        inputs.append(Input(known.get(index.id, index.id), readable))
    return tuple(inputs)


def has_ended(
    running: RunningInstance, registry: Registry, state: DataflowState, description: DataflowDescription
) -> bool:
    """Whether there is nothing to come of it; raises Waiting while that is not known. What inputs that are finished
    make of a view can be computed anew, by the new SQL."""
    if description.continual_task is None:
        return has_passed(end_of(description), now_ms())
    if running.may_end(description):
        return True
    sinces(_inputs(running, registry, state, description), first=True)
    return False


def is_sealed(running: RunningInstance, description: DataflowDescription) -> bool:
    """Whether all that it exports is tables that are finished, by what is known: nobody computes it again."""
    found = [running.shards.frontiers(shard) for shard in tables_of(description)]
    are_finished = bool(found) and all(known is not None and known.upper.is_empty for known in found)
    return are_finished and running.may_end(description)


def _may_be_finished(running: RunningInstance, description: DataflowDescription) -> bool:
    """What is not known of its tables could say that they are; or they are, and the clock is behind."""
    found = [running.shards.frontiers(shard) for shard in tables_of(description)]
    return bool(found) and all(known is None or known.upper.is_empty for known in found)


def is_over(running: RunningInstance, description: DataflowDescription) -> bool:
    """Whether it is sealed by an end of its own, and not because what it reads is finished: whatever becomes of that,
    it stays as it is."""
    return has_passed(end_of(description), now_ms()) and is_sealed(running, description)


def note_end(running: RunningInstance | None, state: DataflowState) -> None:
    """Whether what serves is over, as far as it is known now; then nothing is kept for it any more, also where it is
    suspended. And which revisions were outrun."""
    if running is None or state.active is None:
        return
    if not any(may_be_told(running, mark) for mark in state.marks):
        state.outrun, state.over = frozenset(), ""
        return
    state.outrun = frozenset(mark.name for mark in state.marks if is_outrun(running, state, mark))
    ends = is_over(running, state.active.revision.description) and not is_in_question(running, state, state.active)
    state.over = state.active.name if ends else ""
    if state.over:
        running.shards.release(_stored(state, state.active))


def install(running: RunningInstance, registry: Registry, state: DataflowState, edited: str | None = None) -> None:
    """Sees to it that what is wanted of this Dataflow, and nothing else of it, is installed. Raises Waiting or Rejected
    for what is to serve; of what is to take over the state says why it is not there. `edited`: the Dataflow whose edit
    has just replaced it."""
    wanted = {state.installation(mark) for mark in state.marks} if state.runs else set()
    mine = f"{state.key.path}/"
    for owner in reversed(running.owners()):  # what is to take over first: nobody is sent there then
        if owner.startswith(mine) and owner not in wanted:
            running.drop(owner, _over(running, state, owner), why_dropped(state, edited))
    if not state.runs or state.active is None:
        return
    try:
        _install(running, registry, state, state.active)
    finally:
        _install_pending(running, registry, state)


def why_dropped(state: DataflowState, edited: str | None = None) -> str:
    """As those are told who read it."""
    dataflow = f"Dataflow {state.key.name}"
    if state.deleting:
        return f"{dataflow} was deleted"
    if state.suspended:
        return f"{dataflow} is suspended"
    if edited == state.key.name:
        return f"{dataflow} was edited, and its new revision has taken over"
    whose = "of it, or of what it reads" if edited is None else f"of Dataflow {edited}, which it reads"
    return f"A new revision of {dataflow} has taken over, after an edit {whose}"


def _over(running: RunningInstance, state: DataflowState, owner: str) -> set[ShardId]:
    """Tables that this installation wrote and no other will, whatever becomes of the Dataflow."""
    installed = running.dataflow(owner)
    marks = () if state.deleting else state.marks
    kept = {s.shard_id for mark in marks for s in view_shards(mark.revision.description)}
    return {s.shard_id for s in view_shards(installed.description)} - kept if installed else set()


def restore(running: RunningInstance, registry: Registry) -> None:
    """A replica is about to be told everything: what can be installed is; what cannot be, later."""
    states = [s for s in registry.dataflows(running.namespace) if s.instance == running.name and s.runs]
    for state, mark in exporters_first([(s, mark) for s in states for mark in s.marks]):
        if mark is not state.active:
            _install_pending(running, registry, state)
            continue
        try:
            _install(running, registry, state, mark)
            state.waiting = ()
        except Waiting as waiting:
            state.waiting = (str(waiting),)
        except Rejected as rejected:
            state.plan = PlanRefused(rejected.reason, str(rejected))


def exporters_first(marks: Sequence[Mark]) -> list[Mark]:
    """What exports an index before what imports it. Ids of indexes name plans, so there are no cycles."""
    exporter = {e.id: n for n, (_, mark) in enumerate(marks) for e in mark.revision.description.index_exports}
    imports = {
        n: {exporter[i.id] for i in mark.revision.description.index_imports if i.id in exporter}
        for n, (_, mark) in enumerate(marks)
    }
    return [marks[n] for n in TopologicalSorter(imports).static_order()]


def _install(running: RunningInstance, registry: Registry, state: DataflowState, mark: ActiveRevision) -> None:
    """Raises Waiting, also while replicas are not done with the same revision from before."""
    owner, description = state.installation(mark), mark.revision.description
    lacks = not all(running.index(i.id) for i in description.index_imports)
    is_done = all(on.is_gone for c in running.collections_of(owner) for on in c.replicas.values())
    if lacks and not (is_done and is_sealed(running, description) and not is_in_question(running, state, mark)):
        hold_stored(running.shards, state, only=mark)  # it goes on from where it is, when the index is there again
        running.drop(owner, cause=f"Dataflow {state.key.name} stopped: an index that it imports is not there")
    there = running.dataflow(owner)
    if (there is not None and there.dropped) or (
        there is None and any(map(running.collection, mark.revision.description.export_ids))
    ):
        raise Waiting("Replacing", "waits until all replicas are done with the same revision from before")
    if there is None:
        _create(running, registry, state, mark)
        return
    running.set_lag(owner, state.lag_ms)
    if mark is state.active and there.succession is not None:
        running.take_over(owner, WriterTerm(mark.revision.writer_term))
        running.flush()


def _install_pending(running: RunningInstance, registry: Registry, state: DataflowState) -> None:
    """Nothing that befalls it touches what serves."""
    if state.pending is None or state.active is None:
        return
    mark = state.pending.mark
    if cannot_run_beside(state.active.revision, mark.revision):
        return
    try:
        _install(running, registry, state, mark)
        state.pending_waiting = state.obstacle = ""
    except Waiting as waiting:
        state.pending_waiting = str(waiting)
    except Rejected as rejected:
        state.obstacle = str(rejected)


def running_sinces(description: DataflowDescription, descriptions: Iterable[Description]) -> list[Frontier]:
    """Sinces of the exports on replicas that have this very dataflow."""
    wanted, digest = set(description.export_ids), description.plan_digest
    sinces = []
    for replica in descriptions:
        if any(d.digest == digest and set(d.export_ids) == wanted for d in replica.dataflows):
            sinces += [c.since for c in replica.collections if c.id in wanted and not c.since.is_empty]
    return sinces


def _create(running: RunningInstance, registry: Registry, state: DataflowState, mark: ActiveRevision) -> None:
    book, revision = running.shards, mark.revision
    for shard in view_shards(revision.description):
        book.register(shard.shard_id, shard.location, state.lag_ms)
    as_of = choose_as_of(running, registry, state, revision.description, first=False)
    beside = None if state.active is None or mark is state.active else succession(state.active.revision, revision)
    dataflow = Dataflow(
        state.installation(mark),
        at(revision.description, as_of),
        state.lag_ms,
        beside,
        stays=True,
        finished=is_sealed(running, revision.description) and not is_in_question(running, state, mark),
        inherited=inherited(state, mark),
    )
    running.create_dataflow(dataflow, WriterTerm(revision.writer_term), state.reached)
    book.release(_stored(state, mark))
    running.flush()


def import_names(
    registry: Registry, namespace: str, description: DataflowDescription | None = None
) -> dict[GlobalId, str]:
    """What people call the relations of a namespace, by the ids under which plans import them: what a description
    imports, or all."""
    of = None if description is None else description.import_ids
    return names(registry.sources(namespace), registry.dataflows(namespace), of)


def _stored(state: DataflowState, mark: ActiveRevision) -> str:
    return f"stored {state.installation(mark)}"
