"""Snapshots of the relations of a namespace, for `why`: of those that an answer needs alone.

    why top.top ──► top reads mid.mid, s.t ──► mid, s ──► ...     the objects on the way, and what each of them reads

A status takes 0.1 ms or more, and a namespace may have thousands of objects: the snapshots of an object's relations are
made when one of them is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial

from tidemark_operator.catalogue.dataflow_state import DataflowState, name_of
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.controller.frontiers.collection import Collection, failures
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.gateway.explanations.why import RelationSnapshot, ReplicaSnapshot
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.import_frontiers import import_names
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.kube.cache import Key
from tidemark_operator.resources.conditions.frontier import date
from tidemark_operator.resources.manifest.durations import duration_text
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.dataflow import MaterializedViewSink
from tidemark_protocol.plan.ingestion import DeltaSource, PostgresSource

# conditions in order: each needs those before it
_OF_DATAFLOWS = ("InstanceFound", "Planned", "Scheduled")
_OF_SOURCES = ("InstanceFound", "SchemaKnown", "Ingesting")
_Busy = dict[tuple[str, str], list[str]]
"""Texts by instance and replica."""


class RelationSnapshots(Mapping[str, RelationSnapshot]):
    """The relations of a namespace by their SQL names, as they are now: use it before anything else can run."""

    def __init__(self, context: ReconcileContext, namespace: str) -> None:
        self._context, self._namespace = context, namespace
        self._made: dict[str, RelationSnapshot] = {}
        self._makers: dict[str, Callable[[], Iterator[RelationSnapshot]]] = {}
        for source in context.registry.sources(namespace):
            tables = [f"{source.key.name}.{table}" for table, _ in source.tables()]
            self._makers |= dict.fromkeys(tables or [source.key.name], partial(self._tables, source))
        for dataflow in context.registry.dataflows(namespace):
            exports = dataflow.active.revision.exports if dataflow.active is not None else ()
            relations = [f"{dataflow.key.name}.{export.name}" for export in exports]
            self._makers |= dict.fromkeys(relations or [dataflow.key.name], partial(self._exports, dataflow))

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __getitem__(self, name: str) -> RelationSnapshot:
        if name not in self._made:
            make = self._makers[name]
            self._made |= {each.name: each for each in make() if self._makers.get(each.name) is make}
        return self._made[name]

    @cached_property
    def _names(self) -> dict[GlobalId, str]:
        return import_names(self._context.registry, self._namespace)

    @cached_property
    def _busy(self) -> _Busy:
        return _busy(self._context, self._namespace)

    def _tables(self, state: SourceState) -> Iterator[RelationSnapshot]:
        return _tables(self._context, state, self._busy)

    def _exports(self, state: DataflowState) -> Iterator[RelationSnapshot]:
        return _exports(self._context, state, self._busy, self._names)


def _leases(context: ReconcileContext, namespace: str, index: GlobalId | None, shard: ShardId | None) -> str:
    """The leases that keep a relation readable from before its read policy, as text; empty: none does."""
    book = context.fleet.leases(namespace)
    kept = None if book is None else book.kept_behind(index, shard, now_ms())
    if kept is None:
        return ""
    count = f"{kept.leases} leases keep" if kept.leases > 1 else "a lease keeps"
    behind = duration_text(kept.behind_ms // 1000 * 1000 or 1)
    since = f"from {date(kept.furthest.as_of)} on, {behind} before its read policy"
    return f"{count} it readable {since} (the furthest is of {kept.furthest.caller})"


def _busy(context: ReconcileContext, namespace: str) -> _Busy:
    """The work that replicas have been busy with for seconds: reading files, hydrating."""
    found: _Busy = {}
    for source in context.registry.sources(namespace):
        if source.ingester is not None and source.report is not None and source.report.activity:
            texts = found.setdefault((source.instance, source.ingester.replica), [])
            texts.append(f"DataSource {source.key.name} {source.report.activity}")
    for running in context.fleet.of(namespace):
        for owner in running.owners():
            hydrating = (on for c in running.collections_of(owner)[:1] for on in c.replicas.items())
            for replica, on in hydrating:
                if not on.hydrated and on.hydrating is not None:
                    text = f"{name_of(owner) or owner} hydrates ({on.hydrating.percent}%)"
                    found.setdefault((running.name, replica), []).append(text)
    return found


def _tables(context: ReconcileContext, state: SourceState, busy: _Busy) -> Iterator[RelationSnapshot]:
    """The tables of a DataSource; one entry for a DataSource without tables."""
    obstacle, runs = _conditions(context, state.key, _OF_SOURCES)
    runs = f"DataSource {state.key.name}: {runs}" if runs else ""
    if runs and state.ingester is not None and (texts := busy.get((state.instance, state.ingester.replica))):
        runs += f"; that replica is busy: {', '.join(texts)}"
    tables = list(state.tables())
    if not tables:
        yield RelationSnapshot(state.key.name, "source", None, obstacle=obstacle or "its tables are not known yet")
    percents = {t.table: t.snapshot_percent for t in state.report.tables} if state.report is not None else {}
    for table, ingested in tables:
        says = _says(state, runs, percents.get(table))
        known = context.fleet.book(state.key.namespace).frontiers(ingested.shard.shard_id)
        leases = _leases(context, state.key.namespace, None, ingested.shard.shard_id)
        name, upper = f"{state.key.name}.{table}", known.upper if known else None
        yield RelationSnapshot(name, "table", upper, obstacle=obstacle, runs=says, leases=leases)


def _says(state: SourceState, runs: str, percent: int | None) -> str:
    """A table of PostgreSQL or Delta has no row before all are copied; others take their first rows tick by tick."""
    if percent is None:
        return runs
    if state.pinned is not None and isinstance(state.pinned.source, PostgresSource | DeltaSource):
        return f"its contents are copied ({percent}%), and it stands still until then"
    return "; ".join(filter(None, (runs, f"its first rows are read ({percent}%)")))


def _exports(
    context: ReconcileContext, state: DataflowState, busy: _Busy, names: Mapping[GlobalId, str]
) -> Iterator[RelationSnapshot]:
    """The exports of a Dataflow; one entry for a Dataflow without a plan. `names`: of all relations."""
    obstacle, _ = _conditions(context, state.key, _OF_DATAFLOWS)
    running, active = context.running(state.key.namespace, state.instance), state.active
    if active is None:
        yield RelationSnapshot(state.key.name, "dataflow", None, obstacle=obstacle or "it has not been planned yet")
        return
    description = active.revision.description
    by_shard = {i.shard.shard_id: names.get(i.id, i.shard.location) for i in description.source_imports}
    inputs = (*by_shard.values(), *(names.get(i.id, str(i.id)) for i in description.index_imports))
    sinks = ((e.id, e.sink) for e in description.sink_exports)
    refreshes = {id: sink.refresh for id, sink in sinks if isinstance(sink, MaterializedViewSink)}
    for export in active.revision.exports:
        id = active.revision.export_id(export.name)
        collection = running.collection(id) if running and id else None
        shard = active.revision.view_shard(export.name)
        yield RelationSnapshot(
            f"{state.key.name}.{export.name}",
            export.kind,
            collection.write if collection else None,
            inputs,
            tuple(_replicas(collection, state.instance, busy)) if collection else (),
            obstacle,
            refresh=refreshes.get(id) if id else None,
            until=description.until,
            leases=_leases(context, state.key.namespace, id, shard.shard_id if shard else None),
        )


def _replicas(collection: Collection, instance: str, busy: _Busy) -> Iterator[ReplicaSnapshot]:
    for name, on in sorted(collection.replicas.items()):
        texts = ", ".join((*busy.get((instance, name), ()), *filter(None, [on.recomputing])))
        failure = "; ".join(failures(on))
        yield ReplicaSnapshot(name, on.input, on.output, on.write, on.hydrated, failure, texts, on.catching_up)


def _conditions(context: ReconcileContext, key: Key, types: tuple[str, ...]) -> tuple[str, str]:
    """The first condition that is not True, and if all are, the message of the last one."""
    body = context.cache.get(key)
    status = status_of(context, key, body, now_ms()) if body else None
    found = {c["type"]: c for c in (status or {}).get("conditions", [])}
    for type_ in types:
        condition = found.get(type_)
        if condition is not None and condition["status"] != "True":
            return f"{condition['reason']}: {condition['message']}".rstrip(": "), ""
    last = found.get(types[-1])
    return "", last["message"] if last else ""
