"""Statuses from what the operator knows: one function per kind. Nothing here has an effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

from tidemark_operator.catalogue.dataflow_state import DataflowState, Obstacle, PendingRevision, name_of
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.catalogue.source_tables import tables_of
from tidemark_operator.controller.frontiers.collection import Collection, failures
from tidemark_operator.controller.frontiers.dataflows import Dataflow as Installed
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.reports.publication import PublicationReport, furthest, publication_report
from tidemark_operator.fleet.clients.incompatible_readers import missing_features_text, too_old
from tidemark_operator.fleet.clients.quarantined_readers import why_waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.publish import status_documents
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.import_frontiers import import_names
from tidemark_operator.handlers.revisions.revision_marks import document, pending_document
from tidemark_operator.handlers.revisions.takeover import quarantine
from tidemark_operator.handlers.status.replica_statuses import replica_status_of
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, INSTANCES, REPLICAS, Body, Resource
from tidemark_operator.planning.revision import ActiveRevision
from tidemark_operator.resources.addresses.allowed_hosts import ADDRESS_NOT_ALLOWED, AllowedHosts
from tidemark_operator.resources.addresses.connections import refusal
from tidemark_operator.resources.conditions import data_source
from tidemark_operator.resources.conditions import dataflow as dataflow_conditions
from tidemark_operator.resources.conditions import replica as replica_conditions
from tidemark_operator.resources.conditions.data_source import DataSourceFacts
from tidemark_operator.resources.conditions.dataflow import (
    ERRORING,
    DataflowFacts,
    DestinationFacts,
    EarlierRevision,
    ReplacementFacts,
    Stored,
)
from tidemark_operator.resources.conditions.instance import READY, instance_conditions, invalid_spec
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.instance import ComputeInstance
from tidemark_operator.resources.manifest.replica import ComputeReplica
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink
from tidemark_protocol.version import release

PUBLISHED = "published"
"""The kind of the statuses of published tables."""
State = TypeVar("State", SourceState, DataflowState)
MAX_OPERATORS = 6
"""The operators that a message lists."""

_KINDS: dict[Resource, tuple[Callable[[Body], object], Sequence[str]]] = {
    INSTANCES: (ComputeInstance.parse, (READY,)),
    REPLICAS: (ComputeReplica.parse, replica_conditions.TYPES),
    DATA_SOURCES: (DataSource.parse, data_source.TYPES),
    DATAFLOWS: (Dataflow.parse, dataflow_conditions.TYPES),
}


def status_of(context: ReconcileContext, key: Key, body: Body, now_ms: int) -> dict[str, Any] | None:
    """The status that the object should have; None while nothing is known, or a mark is being written.

    That of a Dataflow or DataSource is of the spec that was reconciled last, and carries its generation: after an edit
    the object may be newer.
    """
    now = status_documents.Now(body.get("status") or {}, body["metadata"].get("generation", 0), now_ms)
    parse, types = _KINDS[key.resource]
    try:
        parse(body)
    except ResourceError as error:
        return status_documents.invalid_status(now, invalid_spec(types, error))
    if key.resource == INSTANCES:
        return _instance(context, key, now)
    if key.resource == REPLICAS:
        return replica_status_of(context, key, body, now)
    if key.resource == DATA_SOURCES:
        source = context.registry.source(key)
        return _source(context, source, body, _reconciled(now, source.reconciled)) if _is_of(source, body) else None
    dataflow = context.registry.dataflow(key)
    return (
        _dataflow(context, dataflow, body, _reconciled(now, dataflow.spec.generation))
        if _is_of(dataflow, body)
        else None
    )


def _is_of(state: State | None, body: Body) -> TypeGuard[State]:
    """Whether the state is of this object, and not of an earlier one of its name."""
    return state is not None and state.uid == body["metadata"]["uid"]


def _reconciled(now: status_documents.Now, generation: int | None) -> status_documents.Now:
    """The generation that was reconciled. The stored status tells it before the first reconciliation of this
    process."""
    known = now.old.get("observedGeneration") if generation is None else generation
    return now if known is None else replace(now, generation=known)


def _instance(context: ReconcileContext, key: Key, now: status_documents.Now) -> dict[str, Any]:
    facts = context.instance_facts(key.namespace, key.name)
    term = context.leadership.term
    return status_documents.instance_status(now, instance_conditions(facts), facts, term, release())


def _source(context: ReconcileContext, state: SourceState, body: Body, now: status_documents.Now) -> dict[str, Any]:
    book = context.fleet.book(state.key.namespace)
    tables = []
    for table in tables_of(state, context.fleet):
        ingested = table.ingested
        known = book.frontiers(ingested.shard.shard_id)
        tables.append(
            status_documents.TableStatus(
                table.name,
                id=ingested.id,
                location=ingested.shard.location,
                columns=ingested.table.columns,
                read_frontier=known.since if known else None,
                write_frontier=known.upper if known and known.upper > Frontier.minimum() else None,
                ingested=table.report,
            )
        )
    reported = bool(tables) and all(table.write_frontier is not None for table in tables)
    report = state.report
    files = file_counters(report.counters) if report else None
    in_error = [f for f in report.files if f.errors][: data_source.MAX_NAMED] if report else []
    facts = DataSourceFacts(
        instance=context.instance_facts(state.key.namespace, state.instance),
        suspended=bool(body["spec"].get("suspend", False)),
        deleting_used_by=_users(context, state.key, body),
        schema_unknown_of=state.schema_unknown_of,
        ingester=state.ingester.replica if state.ingester and reported else None,
        failure=state.refused or state.failure,
        edit=state.edit,
        columns_left_out=state.columns_left_out,
        name=state.key.name,
        files_in_error=files["refused"] if files else 0,
        named_in_error=tuple(f"{f.table}/{f.file} ({f.reason})" for f in in_error),
        warning=report.message if report and report.state == "running" else "",
    )
    ingester = state.ingester
    return status_documents.data_source_status(
        now,
        data_source.data_source_conditions(facts),
        tables,
        ingester.term if ingester else None,
        ingester.replica if ingester else None,
        files,
    )


def file_counters(counters: Mapping[str, int]) -> dict[str, int] | None:
    """The counters of files. None: the source has no files, or not all counters are reported yet."""
    names = {"read": "files", "waiting": "waiting_files", "changed": "changed_files", "refused": "bad_files"}
    if not all(name in counters for name in names.values()):
        return None
    return {shown: counters[name] for shown, name in names.items()}


def _dataflow(
    context: ReconcileContext, state: DataflowState, body: Body, now: status_documents.Now
) -> dict[str, Any] | None:
    if state.revisions.marking:
        return None
    installed, collections = _installed(context, state, state.active)
    pending = state.pending.mark if state.pending else None
    coming, successors = _installed(context, state, pending)
    running, replacement = context.running(state.key.namespace, state.instance), _replacement(state)
    shown, exports = (coming, successors) if replacement and replacement.own else (installed, collections)
    remembered = _remembered(exports, state, now)
    facts = DataflowFacts(
        instance=context.instance_facts(state.key.namespace, state.instance),
        plan=state.plan,
        suspended=state.spec.suspended,
        earlier=_earlier(state, collections) if installed else None,
        deleting_used_by=_users(context, state.key, body),
        waiting_for_inputs=_waits(context, state, shown),
        scheduled=shown is not None and shown.scheduled,
        exports=len(exports),
        exports_hydrated=sum(c.hydrated for c in exports),
        hydration=_hydration(exports) or _turn(running, exports),
        too_old=_incompatible(running, exports, now.ms) if running else "",
        finished=_is_finished(exports),
        exports_in_error=remembered or tuple(text for c in exports for text in _errors(c)),
        errors_recorded=bool(remembered),
        tables_changed=tuple(sorted({on.table_changed for c in exports for _, on in c.computing if on.table_changed})),
        replacement=replacement,
        publications=_publications(state.active, collections, context.allowed_hosts),
        quarantined=quarantine(state, pending if shown is coming and pending else state.active),
        quarantined_input=why_waiting(running, shown)
        if running and shown and not all(c.hydrated for c in exports)
        else "",
    )
    verdicts = dataflow_conditions.dataflow_conditions(facts)
    book = context.fleet.book(state.key.namespace)
    return status_documents.dataflow_status(
        now,
        verdicts,
        _exports(state.active, collections, book),
        document(state.active) if state.active else None,
        _pending(state.pending, successors, book, now.ms) if state.pending else None,
        state.obstacles.suspicions.values(),
    )


def _installed(
    context: ReconcileContext, state: DataflowState, mark: ActiveRevision | None
) -> tuple[Installed | None, list[Collection]]:
    """A revision on its instance, and its exports; nothing if it is not installed, or being dropped."""
    running = context.running(state.key.namespace, state.instance)
    installed = running.dataflow(state.installation(mark)) if running and mark else None
    if running is None or installed is None or installed.dropped:
        return None, []
    return installed, running.collections_of(installed.owner)


def _replacement(state: DataflowState) -> ReplacementFacts | None:
    """A revision that is to take over, or is being prepared. A superseded active revision is treated like an edited
    one: it is not what the spec asks for."""
    preparing, superseded = state.preparing, state.ends.superseded
    failed = preparing is not None and preparing.failed
    if state.active is None or not (state.pending or state.edited or failed or superseded):
        return None
    obstacle = state.taking_over or preparing or Obstacle("another revision is being prepared")
    return ReplacementFacts(state.edited or state.active.name in superseded, obstacle.message, obstacle.failed)


def _earlier(state: DataflowState, exports: Sequence[Collection]) -> EarlierRevision | None:
    """The active revision, if the spec was edited since; not one whose tables another revision has finished."""
    if state.active is None or not state.edited or state.active.name in state.ends.superseded:
        return None
    return EarlierRevision(
        state.active.name,
        hydrated=all(c.hydrated for c in exports),
        exports_in_error=tuple(text for c in exports for text in _errors(c)),
        finished=_is_finished(exports),
    )


def _is_finished(exports: Sequence[Collection]) -> bool:
    return bool(exports) and all(c.write is not None and c.write.is_empty for c in exports)


def _pending(pending: PendingRevision, collections: list[Collection], book: ShardBook, now_ms: int) -> dict[str, Any]:
    return pending_document(pending, [each.document(now_ms) for each in _exports(pending.mark, collections, book)])


def _exports(
    mark: ActiveRevision | None, collections: list[Collection], book: ShardBook
) -> list[status_documents.ExportStatus]:
    if mark is None:
        return []
    revision = mark.revision
    by_id = {c.id: c for c in collections}
    exports = []
    for export in revision.exports:
        id = revision.export_id(export.name)
        shard = revision.view_shard(export.name)
        c = by_id.get(id) if id else None
        stored = book.frontiers(shard.shard_id) if shard else None
        exports.append(
            status_documents.ExportStatus(
                export.name,
                export.kind,
                id=id,
                location=shard.location if shard else None,
                columns=export.columns,
                key=tuple(export.columns[i].name for i in export.key) if shard is None else None,
                read_frontier=stored.since if stored else c.since if c and shard is None else None,
                write_frontier=c.write if c else None,
                input_frontier=c.input if c else None,
                output_frontier=c.output if c else None,
                hydrated=c.hydrated if c else False,
                replicas=tuple(
                    status_documents.ReplicaExport(
                        name,
                        on.hydrated,
                        on.write,
                        on.hydrating.percent if on.hydrating else None,
                        on.catching_up.percent if on.catching_up else None,
                    )
                    for name, on in c.computing
                )
                if c
                else (),
                published=_published_table(revision.description, id, c),
                destinations=_destinations(revision.description, id, c),
            )
        )
    return exports


def _published_table(description: DataflowDescription, id: str | None, c: Collection | None) -> dict[str, Any] | None:
    """The ordinary table that an export is published as, if it is."""
    publish = next((sink.publish for sink in _views(description, id)), None)
    if publish is None:
        return None
    report = None if c is None else _publication(c, PUBLISHED)
    return status_documents.published_document(publish.location, report, publish.iceberg)


def _destinations(description: DataflowDescription, id: str | None, c: Collection | None) -> list[dict[str, Any]]:
    """The destinations of an export outside of Tidemark."""
    return [
        status_documents.destination_document(each.KIND, each.target, None if c is None else _publication(c, each.KIND))
        for sink in _views(description, id)
        for each in sink.outside
    ]


def _views(description: DataflowDescription, id: str | None) -> Iterator[MaterializedViewSink]:
    """The materialized view that is the export, if it is one."""
    sinks = (export.sink for export in description.sink_exports if export.id == id)
    return (sink for sink in sinks if isinstance(sink, MaterializedViewSink))


def _publication(c: Collection, kind: str) -> PublicationReport | None:
    """`kind`: that of the destination's statuses."""
    reports = (publication_report(on.statuses.get(kind, {})) for _, on in c.computing)
    return furthest(report for report in reports if report is not None)


def _publications(
    mark: ActiveRevision | None, exports: Sequence[Collection], allowed: AllowedHosts
) -> tuple[DestinationFacts, ...]:
    """The destinations of a revision's exports, for their conditions."""
    if mark is None:
        return ()
    found = []
    for export in mark.revision.description.sink_exports:
        for kind, refused in _kinds(export.sink, allowed):
            report = next((_publication(c, kind) for c in exports if c.id == export.id), None)
            name = export.id.split("/")[1]
            if refused:
                found.append(DestinationFacts(name, kind, exists=False, problem=refused, reason=ADDRESS_NOT_ALLOWED))
            elif report is None:
                found.append(DestinationFacts(name, kind, exists=False))
            else:
                found.append(DestinationFacts(name, kind, report.time is not None, report.problem, report.reason))
    return tuple(found)


def _kinds(sink: object, allowed: AllowedHosts) -> Iterator[tuple[str, str]]:
    """The kinds of the destinations of an export, each with the reason why it may not connect, which is mostly
    empty."""
    if isinstance(sink, MaterializedViewSink):
        if sink.publish is not None:
            yield PUBLISHED, ""
        yield from ((each.KIND, refusal(each, allowed)) for each in sink.outside)


def _waits(context: ReconcileContext, state: DataflowState, installed: Installed | None) -> tuple[str, ...]:
    """Events that an installed dataflow waits for, or obstacles that keep it from being installed."""
    running = context.running(state.key.namespace, state.instance)
    if running is None or installed is None or installed.scheduled:
        if installed is not None or not isinstance(state.plan, Stored):
            return ()
        of_pending = state.installing(state.pending.mark) if state.edited and state.pending else None
        obstacles = (each for each in (of_pending, state.installing(state.active)) if each is not None)
        return tuple(each.message for each in obstacles if not each.failed)[:1]
    waited = set(running.incomplete_inputs(installed))
    description = installed.description
    names = import_names(context.registry, state.key.namespace, description)
    shards = (i.shard.location for i in description.source_imports if i.shard.shard_id in waited)
    return (*shards, *(f"index {names.get(i.id, i.id)}" for i in description.index_imports if i.id in waited))


def _hydration(collections: Sequence[Collection]) -> str:
    """The progress of a dataflow's hydration: in all, and of the operators that are not done. Its exports are computed
    together, so the furthest one speaks for all."""
    known = [h for c in collections if (h := c.hydrating) is not None]
    if not known:
        return ""
    furthest = max(known)
    busy = [f"{name} {percent}%" for name, percent in furthest.operators if percent < 100]
    more = [f"{len(busy) - MAX_OPERATORS} more"] if len(busy) > MAX_OPERATORS else []
    return f"{furthest.percent}%" + (f" ({', '.join(busy[:MAX_OPERATORS] + more)})" if busy else "")


def _turn(running: RunningInstance | None, exports: Sequence[Collection]) -> str:
    """A note that it waits for a hydration slot on every replica, and which suspects hydrate alone; else empty."""
    if running is None or not running.awaits_slot(exports):
        return ""
    alone = [(name_of(owner), replica) for owner, replica in running.hydrating_suspects()]
    suspects = [
        f"Dataflow {name} hydrates on replica {replica}, alone, as replicas died of it" for name, replica in alone
    ]
    return "; ".join(["waits for its turn", *suspects])


def _remembered(exports: Sequence[Collection], state: DataflowState, now: status_documents.Now) -> tuple[str, ...]:
    """Errors that the stored status has, if no replica computes the dataflow now and its tables are finished: they
    cannot have changed since."""
    stored = (now.old.get("revision") or {}).get("name")
    same = stored is not None and (state.active is None or stored == state.active.name)
    was = bool((now.old.get("writeFrontier") or {}).get("finished"))
    finished = was or _is_finished(exports)
    if not same or not finished or any(c.computing for c in exports):
        return ()
    before = (c for c in now.old.get("conditions") or () if c["type"] == ERRORING and c["status"] == "True")
    return tuple(c["message"] for c in before)


def _incompatible(running: RunningInstance, exports: Sequence[Collection], now_ms: int) -> str:
    """The reason why no replica supports it: every image that answers is too old, and no replica that is away is waited
    for."""
    lacks = too_old(running, exports, now_ms)
    return "" if lacks is None else f"{missing_features_text(lacks)}, or take that away from it"


def _errors(collection: Collection) -> list[str]:
    """The errors of an export, as the first replica that has some reports them."""
    name = collection.id.split("/")[1]
    for replica, on in collection.computing:
        erroring = on.statuses.get("erroring", {})
        if erroring.get("errors", "0") != "0":
            return [f"{name}: {_first_error(erroring)}"]
        for failure in failures(on):
            return [f"{name}: {failure} on replica {replica}"]
    return []


def _first_error(erroring: Mapping[str, str]) -> str:
    """One error (its code, and the expression or file that it comes from), and the number of others."""
    place = f" in {erroring['expression']}" if erroring.get("expression") else ""
    others = int(erroring["errors"]) - 1
    return f"{erroring.get('code', 'error')}{place}" + (f", and {others} more" if others else "")


def _users(context: ReconcileContext, key: Key, body: Body) -> tuple[str, ...]:
    if "deletionTimestamp" not in body["metadata"]:
        return ()
    return tuple(f"{DATAFLOWS.kind} {user.name}" for user in context.registry.users(key))
