"""The reconcile loop: events of the API server and of replicas become reconciles of objects.

start     list everything ─► load what is stored ─► processes and connections ─► work queue, watches, statuses
resync    list everything again each minute, and when watches began: finds what a watch missed
revisit   each minute: objects that wait are reconciled, and the others in turn
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from tidemark_operator.catalogue.dataflow_state import DataflowState, name_of
from tidemark_operator.controller.controller_events import (
    DataflowChanged,
    DataflowGone,
    HydrationOutOfMemory,
    IngestionReported,
    Notice,
    ShardAppeared,
    ShardRemoved,
    SuspectCleared,
)
from tidemark_operator.controller.frontiers.collection import failures
from tidemark_operator.controller.hydration.quarantine import HydrationStanding
from tidemark_operator.errors import LeadershipLost, RevisionUnreadable
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.hydration.hydration_slots import HydrationSlots
from tidemark_operator.handlers.publish.publisher import StatusPublisher
from tidemark_operator.handlers.publish.ready_event import note_ready
from tidemark_operator.handlers.publish.recomputation_event import RecomputationEvents
from tidemark_operator.handlers.reconcile.data_source import DataSourceReconciler
from tidemark_operator.handlers.reconcile.dataflow import DataflowReconciler
from tidemark_operator.handlers.reconcile.instance import (
    align_replicas,
    prepare_instance,
    reconcile_instance,
    reconcile_replica,
)
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions import installer
from tidemark_operator.handlers.revisions.revision_marks import roll_forward
from tidemark_operator.handlers.round_robin import RoundRobin
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.handlers.watch.list_kind import list_kind
from tidemark_operator.handlers.work_queue import WorkQueue
from tidemark_operator.kube.cache import Key, key_of
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, INSTANCES, OURS, REPLICAS, ApiError, Body, Resource
from tidemark_operator.orchestrator.interface import resource_of
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.responses import Description

LOG = logging.getLogger(__name__)
RESYNC_SECONDS = 60.0
GATHER_SECONDS = 0.1
"""Changes within this time reconcile a namespace once."""


class ReconcileLoop:
    """Reconciles all objects, and is the fleet's listener. `stop` is set when this process must end."""

    def __init__(self, context: ReconcileContext, stop: asyncio.Event) -> None:
        self._context, self.stop = context, stop
        self.queue: WorkQueue[Key] = WorkQueue(self._reconcile)
        ready = partial(note_ready, context.events)
        self.publisher = StatusPublisher(context.kube, context.cache, self._status_of, self._settled, ready)
        self.deleter = TableDeleter(context.kube, context.fleet, context.registry, context.cache)
        self._slots = HydrationSlots(context, self.publisher)
        self._recomputations = RecomputationEvents(context.events)
        self._round_robin: RoundRobin[Key] = RoundRobin()
        self._gathering: set[str] = set()
        self._missed = asyncio.Event()
        self.sources = DataSourceReconciler(context, self.publisher, self.deleter, self.queue.add)
        self._dataflows = DataflowReconciler(context, self.publisher, self.deleter, self.queue.add_first)
        self.ready = self.lost_leadership = False

    async def start(self) -> None:
        """Loads everything before anything is done: instances, then stored revisions, then processes. A replica that
        connected earlier would be told of no dataflow, and drop all that it has."""
        with self._context.kube.patient():
            await self._load()
        for namespace in {key.namespace for key, _ in self._context.cache.all(DATAFLOWS)}:
            roll_forward(self._context.fleet.book(namespace), self._context.registry.dataflows(namespace))
        self.ready = True
        align_replicas(self._context)
        self._enqueue_all()

    async def _load(self) -> None:
        for resource in OURS:
            self._context.cache.replace_all(resource, await list_kind(self._context.kube, resource))
        for key, _ in self._context.cache.all(INSTANCES):
            prepare_instance(self._context, key)
        async with self._context.revisions.listed():
            for key, body in self._context.cache.all(DATA_SOURCES):
                await self._load_source(key, body)
            for key, body in self._context.cache.all(DATAFLOWS):
                await self._load_dataflow(key, body)

    async def close(self) -> None:
        """Nothing more is written."""
        await self._slots.close()

    async def resync(self) -> None:
        """Runs until cancelled. If the API server is away, it is tried again later.

        Raises:
            OperatorError: the API server has our kinds no more.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + RESYNC_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(due):
                    await self._missed.wait()
                is_due = False
            except TimeoutError:
                is_due, due = True, loop.time() + RESYNC_SECONDS
            self._missed.clear()
            try:
                await self._resync()
                if is_due:
                    await self._revisit()
            except ApiError as error:
                LOG.warning("resync: %s", error)

    async def _resync(self) -> None:
        for resource in OURS:
            with self._context.cache.changes() as changes:
                listed = await list_kind(self._context.kube, resource)
            for key in self._context.cache.replace_all(resource, listed, changes):
                self._changed(key)

    async def _revisit(self) -> None:
        existing = self._context.cache.keys()
        for key in self._context.registry.known_keys():
            if key not in existing:
                self.queue.add(key)
        for key in [*self._round_robin.next(existing), *self._context.registry.waiting_keys()]:
            self.queue.add(key)
        for namespace in {key.namespace for key, _ in self._context.cache.all(INSTANCES)}:
            await self.deleter.collect(namespace)

    def request_resync(self) -> None:
        """Watches began: list everything again soon, as they have no event for objects that were deleted before."""
        self._missed.set()

    def observed(self, resource: Resource, body: Body, deleted: bool) -> None:
        """A watch has an event of the object."""
        key = key_of(resource, body)
        cache = self._context.cache
        if deleted:
            # a reconcile runs also if the cache has dropped the object: it forgets the rest
            cache.remove(key)
            self._changed(key)
        elif cache.put(key, body):
            self._changed(key)

    # The fleet's listener.

    def standing(self, instance: RunningInstance, owner: str) -> HydrationStanding:
        return self._slots.standing(instance, owner)

    def greeted(self, instance: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        return self._slots.greeted(instance, replica, incarnation)

    def occupied(self, instance: RunningInstance, replica: ReplicaId) -> None:
        self._slots.changed(instance, replica)

    def restore(self, instance: RunningInstance, description: Description) -> None:
        installer.restore(instance, self._context.registry)
        self.sources.resume(instance)

    def replica_changed(self, instance: RunningInstance, replica: ReplicaId) -> None:
        self._enqueue_namespace(instance.namespace)
        self.deleter.collect_soon(instance.namespace)

    def notice(self, instance: RunningInstance, notice: Notice) -> None:
        match notice:
            case ShardAppeared() | DataflowGone():
                self._enqueue_namespace(instance.namespace)
            case ShardRemoved(replica, answer):
                self.deleter.requests.record_answer(instance.name, replica, answer, now_ms())
                self.deleter.collect_soon(instance.namespace)
                self._enqueue_namespace(instance.namespace)
            case DataflowChanged(owner):
                changed = Key(DATAFLOWS, instance.namespace, name_of(owner))
                self.queue.add(changed)
                self.publisher.announce(changed)
            case SuspectCleared(owner):
                self._slots.hydrated(instance, owner)
            case HydrationOutOfMemory(replica, ran_out):
                self._slots.ran_out(instance, replica, ran_out)
            case IngestionReported(replica, status):
                if (key := self.sources.report(replica, status, instance.namespace)) is not None:
                    self.queue.add(key)
            case _:
                pass

    async def outranked(self, by: int) -> None:
        await self._context.leadership.outranked(by)

    def connection_ended(self, instance: RunningInstance, replica: ReplicaId, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        LOG.error("connection to replica %s/%s ended: %s", instance.namespace, replica, error, exc_info=error)
        if isinstance(error, LeadershipLost):
            self.lost_leadership = True
            self.stop.set()
        else:
            self.queue.add(Key(REPLICAS, instance.namespace, resource_of(replica)[0]), after_seconds=1.0)

    # Reconciling.

    async def _reconcile(self, key: Key) -> None:
        """Reconciles one object. If the cache does not have it, the API server is asked."""
        body = self._context.cache.get(key)
        if body is None:
            body = await self._context.kube.get(key.resource, key.namespace, key.name)
            if body is not None:
                self._context.cache.put(key, body)
        again = None
        try:
            again = await self._dispatch(key, body)
        except ResourceError as error:
            LOG.warning("%s is not reconciled: its spec cannot be parsed: %s", key, error)
        except Exception:
            # it is retried with growing pauses, so its status is published now
            await self._publish(key, body)
            raise
        await self._publish(key, body)
        if again is not None:
            self.queue.add(key, again)

    async def _publish(self, key: Key, body: Body | None) -> None:
        if body is not None:
            await self.publisher.publish(key)

    async def _dispatch(self, key: Key, body: Body | None) -> float | None:
        if key.resource == INSTANCES:
            await reconcile_instance(self._context, key)
        elif key.resource == REPLICAS:
            if body is None:
                self._slots.forget(key)
            await reconcile_replica(self._context, key)
        elif key.resource == DATA_SOURCES:
            if body is not None:
                return await self._reconcile_source(key, body)
            self.sources.forget(key)
        else:
            if body is not None:
                return await self._reconcile_dataflow(key, body)
            if self._dataflows.forget(key):
                # objects that it read may have waited for it to go
                self._enqueue_namespace(key.namespace)
        return None

    async def _reconcile_source(self, key: Key, body: Body) -> float | None:
        """New tables give names a meaning. No event announces those of adopted tables, so others are reconciled
        here."""
        before = self._context.registry.source(key)
        pinned = before.pinned if before else None
        again = await self.sources.reconcile(key, body)
        after = self._context.registry.source(key)
        if after is not None and after.pinned is not pinned:
            self._enqueue_namespace(key.namespace)
        return again

    async def _reconcile_dataflow(self, key: Key, body: Body) -> float | None:
        """A new plan changes what names mean, and which objects are read."""
        before = self._context.registry.dataflow(key)
        marks = before.marks if before else ()
        again = await self._dataflows.reconcile(key, body)
        after = self._context.registry.dataflow(key)
        if after is not None and after.marks != marks:
            self._enqueue_namespace(key.namespace)
        if after is not None:
            await self._warn(after)
        return again

    async def _warn(self, state: DataflowState) -> None:
        """Emits an Event for each failure of a replica: the condition may show another reason."""
        running = self._context.running(state.key.namespace, state.instance)
        installed = [state.installation(mark) for mark in state.marks]
        exports = [c for owner in installed for c in running.collections_of(owner)] if running else []
        for collection in exports:
            for replica, on in collection.computing:
                for failure in failures(on):
                    await self._context.events.warn(
                        state.key, state.uid, "ReplicaFailed", f"replica {replica}, {collection.id}: {failure}"
                    )
                if changed := on.table_changed:
                    await self._context.events.warn(state.key, state.uid, "TableChanged", changed)
                if (done := on.recomputed) is not None:
                    await self._recomputations.tell(state.key, state.uid, replica, done, now_ms())

    def _changed(self, key: Key) -> None:
        """Reconciles the object, and others of its namespace, which may depend on it."""
        self.queue.add(key)
        self._enqueue_namespace(key.namespace)

    def _enqueue_namespace(self, namespace: str) -> None:
        """Reconciles the namespace soon, once for all changes until then: otherwise a thousand new Dataflows would
        cause a million reconciles."""
        if namespace not in self._gathering:
            self._gathering.add(namespace)
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._enqueue_now, namespace)

    def _enqueue_now(self, namespace: str) -> None:
        self._gathering.discard(namespace)
        for resource in OURS:
            keys = [key for key, _ in self._context.cache.all(resource, namespace)]
            self.queue.add_all(key for key in keys if not self._dataflows.is_in_line(key))

    def _enqueue_all(self) -> None:
        for resource in OURS:
            self.queue.add_all(key for key, _ in self._context.cache.all(resource))

    # Starting.

    async def _load_source(self, key: Key, body: Body) -> None:
        try:
            await self.sources.load(self.sources.adopt(key, body), DataSource.parse(body))
        except (ResourceError, RevisionUnreadable) as error:
            LOG.warning("%s is not loaded: %s", key, error)

    async def _load_dataflow(self, key: Key, body: Body) -> None:
        """Suspended Dataflows are loaded too: their inputs are held."""
        try:
            state = self._dataflows.adopt(key, body)
            self._dataflows.read_spec(state, body)
            await self._dataflows.load(state, body)
        except (ResourceError, RevisionUnreadable) as error:
            LOG.warning("%s is not loaded: %s", key, error)

    # Statuses.

    def _status_of(self, key: Key, body: Body) -> Body | None:
        return status_of(self._context, key, body, now_ms())

    def _settled(self, key: Key, body: Body) -> bool:
        """Whether a replica of its instance has answered since this process started, or there is none."""
        name = key.name if key.resource == INSTANCES else body["spec"].get("instance", "")
        running = self._context.running(key.namespace, name)
        return running is None or not running.replicas or bool(running.online)
