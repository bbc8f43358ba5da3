"""Reconciles a DataSource: each of its tables is pinned once, and one replica ingests them.

    deleted, without readers ─► handlers/deletion/data_source_deletion.py
    tables pinned? ──no──► source_pinning.py
        │
    tables added or removed ─► table_edits.py
        │
    ingester ─► stored in the status, with a new writer term if it changed ─► RunIngestion

Each step is stored before it takes effect: an operator that begins after a crash goes on from what is stored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from tidemark_operator.catalogue.file_requests import Requests, added, recorded, settled, unfinished
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.controller.frontiers.shards import ingesting
from tidemark_operator.controller.ingester_choice import Candidates, Ingester, choose_ingester
from tidemark_operator.errors import QueryRefused, RevisionUnreadable
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.data_source_deletion import DataSourceDeletion, pinned_shards
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.deletion.upstream_release import keeps_upstream
from tidemark_operator.handlers.finalizers import set_finalizer
from tidemark_operator.handlers.holds import adopted_history_hold
from tidemark_operator.handlers.holds.adopted_history_hold import hold_history
from tidemark_operator.handlers.publish.publisher import StatusPublisher
from tidemark_operator.handlers.reconcile.publication_looks import publication_of
from tidemark_operator.handlers.reconcile.source_loop_check import reads_own_tables
from tidemark_operator.handlers.reconcile.source_pinning import SourcePinning
from tidemark_operator.handlers.reconcile.table_edits import EVOLVE_SECONDS, TableEdits
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.replica_specs import replica_spec
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import Body
from tidemark_operator.orchestrator.interface import Phase, replica_id
from tidemark_operator.resources.addresses.allowed_hosts import ADDRESS_NOT_ALLOWED
from tidemark_operator.resources.addresses.connections import refusal
from tidemark_operator.resources.conditions.data_source import FOR_SOMEBODY, IngestionFailure
from tidemark_operator.resources.conditions.instance import IMAGE_TOO_OLD
from tidemark_operator.resources.manifest.data_source import DataSource, DeletionPolicy
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, WriterTerm
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.plan.plan_features import required_features

RETRY_SECONDS = 5.0
EDIT_SECONDS = 2.0
"""The pause before an edit of the tables that is not done is tried again."""
TAKEOVER_SECONDS = 0.25
"""The pause between two looks at an ingester that is not online, while another replica could take over."""


class DataSourceReconciler:
    """`again`: puts a DataSource into the work queue."""

    def __init__(
        self, context: ReconcileContext, publisher: StatusPublisher, deleter: TableDeleter, again: Callable[[Key], None]
    ) -> None:
        self._context, self._publisher, self._again = context, publisher, again
        self._requesting = asyncio.Lock()
        self._deletion = DataSourceDeletion(context, deleter)
        self._pinning = SourcePinning(context, deleter, again)
        self._edits = TableEdits(context, deleter, self._pinning.inspections, self._pinning.looks)

    def adopt(self, key: Key, body: Body) -> SourceState:
        """The state of this object. That of an earlier object of the same name is forgotten."""
        uid = body["metadata"]["uid"]
        state = self._context.registry.source(key)
        if state is None or state.uid != uid:
            if state is not None:
                self.forget(key)
            state = self._context.registry.put_source(SourceState(key, uid, body["spec"]["instance"]))
            state.requests = recorded(body.get("status"))
            stored = (body.get("status") or {}).get("ingester")
            if stored is not None:
                state.ingester = Ingester(stored.get("replica", ""), WriterTerm(stored["writerTerm"]))
        return state

    async def load(self, state: SourceState, source: DataSource) -> None:
        """Reads its pinned tables, if they are stored, and checks whether the source may be read."""
        await self._pinning.load(state, source)
        state.refused = self._refusal(state, source)
        self._register(state)

    def _refusal(self, state: SourceState, source: DataSource) -> IngestionFailure | None:
        """The reason why the source may not be read: as it is written, or as it was pinned, which is what replicas
        receive."""
        specs = [source.source, *([state.pinned.source] if state.pinned is not None else [])]
        for spec in specs:
            if text := refusal(spec, self._context.allowed_hosts):
                return IngestionFailure(ADDRESS_NOT_ALLOWED, text)
        running = self._context.running(state.key.namespace, state.instance)
        if running is None:
            known = state.refused
            return None if known is None or known.reason == ADDRESS_NOT_ALLOWED else known
        pinned = source.source if state.pinned is None else state.pinned.source
        return reads_own_tables(pinned, running.config.storage_location, state.key.namespace)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._pinning.inspections.forget(key)
        self._edits.forget(key)
        state = self._context.registry.source(key)
        if state is not None:
            self._deletion.forget(state)

    async def reconcile(self, key: Key, body: Body) -> float | None:
        """Returns the seconds until it must be reconciled again, if time alone can change something. Raises ApiError,
        ResourceError."""
        source = DataSource.parse(body)
        state = self.adopt(key, body)
        try:
            again = await self._reconcile(state, source, body)
        except RevisionUnreadable as error:
            state.refused, again = IngestionFailure("RevisionUnreadable", str(error)), None
        state.reconciled = source.meta.generation
        return again

    async def _reconcile(self, state: SourceState, source: DataSource, body: Body) -> float | None:
        key, users = state.key, self._context.registry.users(state.key)
        running = self._context.running(key.namespace, source.instance)
        if source.meta.deleting and not users:
            return await self._deletion.delete(state, source, body)
        deletes_tables = source.deletion_policy is DeletionPolicy.DELETE
        holds = deletes_tables or keeps_upstream(source.source)
        wanted = bool(users) or (holds and not source.meta.deleting)
        await set_finalizer(self._context.kube, self._context.cache, key, wanted)
        if running is None:
            return None
        await self.load(state, source)
        if state.refused is not None:
            running.drop_ingestion(GlobalId(state.uid))
            return None
        if running.is_too_old_for(state.pinned or source.source):
            state.failure = IngestionFailure(IMAGE_TOO_OLD, running.too_old)
        elif state.failure is not None and state.failure.reason == IMAGE_TOO_OLD:
            state.failure = None
        if state.pinned is None:
            if not await self._pinning.pin(state, source, running):
                return self._pinning.inspections.pause(key, source.source) or RETRY_SECONDS
            self._register(state)
        try:
            editing = await self._edits.apply(state, source, running)
        finally:  # an edit that fails stops no ingestion
            self._register(state)
            again = await self._ingest(state, source, running)
        if not await self._edits.delete_retired(state, source, running) or editing:
            again = min(again or EDIT_SECONDS, EDIT_SECONDS)
        if source.evolving or publication_of(source) is not None:
            again = min(again or EVOLVE_SECONDS, EVOLVE_SECONDS)
        return adopted_history_hold.POLL_SECONDS if again is None and self._hold_history(state) else again

    def report(self, replica: ReplicaId, status: IngestionStatus, namespace: str) -> Key | None:
        """Records a replica's report of an ingestion, and returns the DataSource. A report of a replica that is not the
        ingester (any more) is dropped: it would stand until the ingester has something new to report."""
        for state in self._context.registry.sources(namespace):
            if state.uid == status.id and state.ingester is not None and state.ingester.replica == replica:
                state.report, state.failure = status, failure_of(status)
                return state.key
        return None

    async def request_file(self, key: Key, action: str, table: str, file: str) -> int:
        """Stores a request about a bound file; returns its id. The ingester is sent it, again and again, until it
        reports the outcome.

        Raises:
            QueryRefused: there is no such DataSource, or another request about the file is unfinished.
            ApiError: the request could not be stored.
        """
        state = self._context.registry.source(key)
        if state is None:
            raise QueryRefused(f"there is no DataSource {key.name} in namespace {key.namespace}")
        async with self._requesting:
            requests, id = added(state.requests, action, table, file, now_ms())
            await self._store_requests(state, requests)
        self._again(key)
        return id

    async def _settle_requests(self, state: SourceState) -> None:
        """Stores the outcomes that the ingester reports. Raises ApiError."""
        outcomes = state.report.outcomes if state.report else ()
        if settled(state.requests, outcomes) == state.requests:
            return  # the lock is not taken: a write about another source may be slow
        async with self._requesting:
            await self._store_requests(state, settled(state.requests, outcomes))

    async def _store_requests(self, state: SourceState, requests: Requests) -> None:
        if requests != state.requests:
            stored = {"fileRequests": [request.document() for request in requests]}
            await self._publisher.store(state.key, stored, state.uid)
            state.requests = requests

    def resume(self, running: RunningInstance) -> None:
        """Runs the ingestions of the instance, before a replica is told what the instance has."""
        for state in self._context.registry.sources(running.namespace):
            stopped = self._is_suspended(state.key) or state.refused is not None
            if state.instance == running.name and state.pinned and state.ingester and not stopped:
                replica = ReplicaId(state.ingester.replica)
                running.run_ingestion(replica, state.pinned, state.ingester.term, unfinished(state.requests))

    def _is_suspended(self, key: Key) -> bool:
        body = self._context.cache.get(key)
        return body is None or bool(body["spec"].get("suspend", False))

    def _register(self, state: SourceState) -> None:
        if state.pinned is None:
            return
        book = self._context.fleet.book(state.key.namespace)
        lag = self._context.lag_ms(state.key.namespace, state.instance)
        for table in state.pinned.tables:
            book.register(table.shard.shard_id, table.shard.location, lag, owned=True)
        book.register(state.pinned.remap_id, state.pinned.remap_location, lag, owned=True)
        running = self._context.running(state.key.namespace, state.instance)
        if running is None or not running.is_ingesting(state.pinned.id):
            # suspended, for example: which bindings the tables lack is known once a replica ingests again
            book.hold(state.pinned.remap_id, ingesting(state.pinned.id), Frontier.minimum())
        self._hold_history(state)

    def _hold_history(self, state: SourceState) -> bool:
        """Holds its adopted tables, or releases them. Returns whether any is held."""
        return hold_history(self._context, state.key, state.uid, pinned_shards(state.pinned) if state.pinned else ())

    async def _ingest(self, state: SourceState, source: DataSource, running: RunningInstance) -> float | None:
        assert state.pinned is not None
        if source.suspend:
            running.drop_ingestion(state.pinned.id)
            return None
        book = self._context.fleet.book(state.key.namespace)
        terms = [shard.term for id, _ in pinned_shards(state.pinned) if (shard := book.get(id))]
        chosen = choose_ingester(state.ingester, self._candidates(state, running), terms)
        if chosen is None:
            return RETRY_SECONDS
        if chosen != state.ingester:
            stored = {"ingester": {"replica": chosen.replica, "writerTerm": chosen.term}}
            await self._publisher.store(state.key, stored, state.uid)
            state.ingester = chosen
        await self._settle_requests(state)
        running.run_ingestion(ReplicaId(chosen.replica), state.pinned, chosen.term, unfinished(state.requests))
        if chosen.replica in running.online:
            return None
        return TAKEOVER_SECONDS if running.online else RETRY_SECONDS

    def _candidates(self, state: SourceState, running: RunningInstance) -> Candidates:
        instance = self._context.instance(state.key.namespace, state.instance)
        features = required_features(state.pinned)
        unable = {id for id, each in running.replicas.items() if each.description and not each.understands(features)}
        existing = [
            id
            for replica in self._context.replicas(state.key.namespace, state.instance)
            if not replica.suspend and self._context.orchestrator.refusal(replica_spec(replica, instance)) is None
            for id in self._context.processes(replica)
            if id not in unable
        ]
        silent = running.replicas.get(ReplicaId(state.ingester.replica)) if state.ingester else None
        silent_ms = now_ms() - silent.silent_since_ms if silent and silent.silent_since_ms else 0
        online = [id for id in running.online if id not in unable]
        return Candidates(existing, online, silent_ms, self._has_ended(state))

    def _has_ended(self, state: SourceState) -> bool:
        """Whether the orchestrator has no running process of the ingester."""
        observed = [
            each.phase
            for replica in self._context.replicas(state.key.namespace, state.instance)
            for each in self._context.orchestrator.observe(replica.meta.uid)
            if state.ingester is not None and replica_id(replica.meta.name, each.shape) == state.ingester.replica
        ]
        return bool(observed) and Phase.RUNNING not in observed


def failure_of(report: IngestionStatus) -> IngestionFailure | None:
    """The failure that an ingester reports, as `Reason: message` or as a message; None while it runs. A reason must
    have the form that the API server demands, or it would refuse the whole status. An ingestion that failed begins
    again by itself; tables that were stopped, and relations that this operator cannot give, wait for somebody."""
    if report.state == "running" or not report.message or report.message == "starting":
        return None
    word, _, rest = report.message.partition(": ")
    state = report.state.capitalize() if re.fullmatch(r"[A-Za-z]{1,63}", report.state) else "Failed"
    reason = word if rest and re.fullmatch(r"[A-Z][A-Za-z]{1,63}", word) else f"Ingestion{state}"
    return IngestionFailure(reason, report.message, passes=report.state != "stopped" and reason not in FOR_SOMEBODY)
