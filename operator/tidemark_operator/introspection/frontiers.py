"""The frontiers of every table and export, as the controller knows them now."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.catalogue.source_tables import tables_of
from tidemark_operator.controller.frontiers.collection import ExportOnReplica
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.pb.gateway_pb2 import CollectionFrontiers, FrontiersReply, OperatorHydration, ReplicaFrontiers


def frontiers(context: ReconcileContext, namespace: str, all_namespaces: bool) -> FrontiersReply:
    """The reply for one namespace, or for all; times are milliseconds since 1970."""
    every = {key.namespace for resource in (DATA_SOURCES, DATAFLOWS) for key, _ in context.cache.all(resource)}
    places = sorted(every) if all_namespaces else [namespace]
    collections = [c for place in places for c in frontiers_of(context, place)]
    return FrontiersReply(collections=collections, now=now_ms())


def frontiers_of(context: ReconcileContext, namespace: str) -> Iterator[CollectionFrontiers]:
    """The frontiers of a namespace's collections, one after another: a caller that has enough of them stops."""
    for source in sorted(context.registry.sources(namespace), key=lambda s: s.key.name):
        yield from _tables(context, source)
    for dataflow in sorted(context.registry.dataflows(namespace), key=lambda d: d.key.name):
        yield from _exports(context, dataflow)


def _tables(context: ReconcileContext, state: SourceState) -> Iterator[CollectionFrontiers]:
    book = context.fleet.book(state.key.namespace)
    for table in tables_of(state, context.fleet):
        known, report = book.frontiers(table.ingested.shard.shard_id), table.report
        yield CollectionFrontiers(
            namespace=state.key.namespace,
            name=f"{state.key.name}.{table.name}",
            kind="table",
            id=table.ingested.id,
            read=_number(known.since if known else None),
            write=_number(table.upper),
            hydrated=table.upper is not None and table.upper > Frontier.minimum(),
            behind=report.behind if report else None,
            unit=report.unit if report else "",
            snapshot_percent=report.snapshot_percent if report else None,
            stopped=report is not None and report.stopped,
        )


def _exports(context: ReconcileContext, state: DataflowState) -> Iterator[CollectionFrontiers]:
    running = context.running(state.key.namespace, state.instance)
    for export in state.active.revision.exports if state.active else ():
        assert state.active is not None
        id = state.active.revision.export_id(export.name)
        collection = running.collection(id) if running and id else None
        shard = state.active.revision.view_shard(export.name)
        stored = context.fleet.book(state.key.namespace).frontiers(shard.shard_id) if shard else None
        yield CollectionFrontiers(
            namespace=state.key.namespace,
            name=f"{state.key.name}.{export.name}",
            kind=export.kind,
            id=id or "",
            read=_number(stored.since if stored else collection.since if collection and shard is None else None),
            write=_number(collection.write if collection else None),
            input=_number(collection.input if collection else None),
            output=_number(collection.output if collection else None),
            hydrated=collection is not None and collection.hydrated,
            hydrated_percent=collection.hydrating.percent if collection and collection.hydrating else None,
            replicas=[_replica(name, on) for name, on in collection.computing] if collection else (),
        )


def _replica(name: ReplicaId, on: ExportOnReplica) -> ReplicaFrontiers:
    hydrating = on.hydrating
    operators = hydrating.operators if hydrating else ()
    return ReplicaFrontiers(
        replica=name,
        write=_number(on.write),
        input=_number(on.input),
        output=_number(on.output),
        hydrated_percent=hydrating.percent if hydrating else None,
        operators=[OperatorHydration(name=operator, percent=percent) for operator, percent in operators],
    )


def _number(frontier: Frontier | None) -> int | None:
    return None if frontier is None else frontier.encode()
