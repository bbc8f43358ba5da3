"""Installing stored revisions on an instance. Never waits: a replica that reconnects is waiting for it.

    stored hold (inputs stay as they are) ─► as_of ─► Instance.create (its own holds) ─► stored hold goes

What imports an index is installed after what exports it, and only while that is there: a Dataflow whose exporter is
suspended waits with it. The stored hold is taken as soon as a revision is known, so that between an operator's start
and the installation, or while a Dataflow is suspended, nothing of its shards is compacted that it will read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter

from tidemark_operator.catalogue.registry import DataflowState, Registry
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.controller.as_of import AsOfRequest, Input, select_as_of
from tidemark_operator.controller.dataflows import Dataflow
from tidemark_operator.controller.shards import FrontierPair, ShardBook
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.fleet.running import RunningInstance
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.assemble import at
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_operator.resources.dataflow_conditions import PlanRefused
from tidemark_protocol.dataflow import DataflowDescription, ShardMetadata, ShardSink
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.responses import Description


def view_shards(description: DataflowDescription) -> list[ShardMetadata]:
    return [e.sink.shard for e in description.sink_exports if isinstance(e.sink, ShardSink)]


def hold_stored(book: ShardBook, state: DataflowState) -> None:
    """Whatever the active revision reads stays as it is until the revision is installed."""
    if state.active is None:
        return
    description = state.active.revision.description
    for shard in view_shards(description):
        book.register(shard.shard_id, shard.location, state.lag_ms)
        if description.continual_task is not None:  # it goes on from what its own table holds
            book.hold(shard.shard_id, _stored(state), Frontier.minimum())
    for source in description.source_imports:
        book.register(source.shard.shard_id, source.shard.location)
        book.hold(source.shard.shard_id, _stored(state), Frontier.minimum())


def forget_stored(book: ShardBook, state: DataflowState) -> None:
    """The Dataflow is gone: its hold goes, and nobody looks after its views any more."""
    book.release(_stored(state))
    if state.active is not None:
        for shard in view_shards(state.active.revision.description):
            book.forget(shard.shard_id)


def choose_as_of(
    running: RunningInstance, registry: Registry, state: DataflowState, description: DataflowDescription, first: bool
) -> Time:
    """Where the dataflow begins; raises Waiting or Rejected. `first`: it was never stored before."""
    book = running.core.shards
    names = import_names(registry, state.key.namespace)
    inputs = []
    for source in description.source_imports:
        shard = book.register(source.shard.shard_id, source.shard.location)
        inputs.append(Input(names.get(source.id, source.shard.location), shard.readable, shard.error))
    for index in description.index_imports:
        collection = running.core.dataflows.index(index.id)
        if collection is None:
            raise Waiting("WaitingForInput", f"waits for the index {names.get(index.id, index.id)} to be installed")
        readable = FrontierPair(collection.write or Frontier.minimum(), collection.since)
        inputs.append(Input(names.get(index.id, index.id), readable))
    sinks = [f.upper for shard in view_shards(description) if (f := book.frontiers(shard.shard_id))]
    exact = description.continual_task is not None and not first
    if exact and not sinks:
        raise Waiting("WaitingForInput", "waiting for a replica to report how far its own table is")
    descriptions = [r.description for r in running.replicas.values() if r.description]
    return select_as_of(
        AsOfRequest(
            inputs=tuple(inputs),
            sinks=tuple(upper for upper in sinks if upper > Frontier.minimum()),
            stored=None if first else description.as_of,
            running=tuple(running_sinces(description, descriptions)),
            requested=None if state.requested_as_of is None else Time(state.requested_as_of),
            exact=exact,
        )
    )


def install(running: RunningInstance, registry: Registry, state: DataflowState) -> None:
    """Sees to it that the active revision, and nothing else of this Dataflow, is installed. Raises Waiting, also while
    replicas are not done with an earlier revision."""
    if state.active is None or state.suspended or state.deleting:
        running.drop(state.owner)
        return
    revision = state.active.revision
    if not all(running.core.dataflows.index(i.id) for i in revision.description.index_imports):
        running.drop(state.owner)
    there = running.core.dataflows.get(state.owner)
    if there is not None and (there.dropped or there.description.export_ids != revision.description.export_ids):
        running.drop(state.owner)
        there = running.core.dataflows.get(state.owner)
    if there is not None and there.dropped:
        raise Waiting("Replacing", "waits until all replicas are done with the revision before")
    if there is not None:
        running.core.dataflows.set_lag(state.owner, state.lag_ms)
        return
    _create(running, registry, state, revision)


def restore(running: RunningInstance, registry: Registry) -> None:
    """A replica is about to be told everything: what can be installed is; what cannot be, later."""
    states = [s for s in registry.dataflows(running.namespace) if s.instance == running.name and s.active is not None]
    for state in exporters_first(states):
        try:
            install(running, registry, state)
            state.waiting = ()
        except Waiting as waiting:
            state.waiting = (str(waiting),)
        except Rejected as rejected:
            state.plan = PlanRefused(rejected.reason, str(rejected))


def exporters_first(states: Iterable[DataflowState]) -> Iterator[DataflowState]:
    """What is read before what reads it. No Dataflow reads itself, however indirectly: an edit is refused while others
    depend on what it replaces."""
    by_name = {s.key.name: s for s in states}
    reads = {name: {p.name for p in s.reads if p.kind == DATAFLOWS.kind} for name, s in by_name.items()}
    return (by_name[name] for name in TopologicalSorter(reads).static_order() if name in by_name)


def running_sinces(description: DataflowDescription, descriptions: Iterable[Description]) -> list[Frontier]:
    """Sinces of the exports on replicas that have this very dataflow."""
    wanted, digest = set(description.export_ids), description.plan_digest
    sinces = []
    for replica in descriptions:
        if any(set(d.export_ids) == wanted and d.digest == digest for d in replica.dataflows):
            sinces += [c.since for c in replica.collections if c.id in wanted and not c.since.is_empty]
    return sinces


def _create(running: RunningInstance, registry: Registry, state: DataflowState, revision: DataflowRevision) -> None:
    book = running.core.shards
    for shard in view_shards(revision.description):
        book.register(shard.shard_id, shard.location, state.lag_ms)
    as_of = choose_as_of(running, registry, state, revision.description, first=False)
    dataflow = Dataflow(state.owner, at(revision.description, as_of), state.lag_ms)
    running.core.create(dataflow, WriterTerm(revision.writer_term))
    running.core.dataflows.seed(state.reached)
    book.release(_stored(state))
    running.flush()


def import_names(registry: Registry, namespace: str) -> dict[GlobalId, str]:
    """What people call the relations of a namespace, by the ids under which plans import them."""
    relations = catalogue(registry.sources(namespace), registry.dataflows(namespace)).relations
    return {r.id: f"{r.parent}.{r.name}" for r in relations}


def _stored(state: DataflowState) -> str:
    return f"stored {state.owner}"
