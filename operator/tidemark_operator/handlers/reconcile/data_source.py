"""DataSource: pin its tables once, choose who ingests, and keep it that way.

    tables known? ──no──► a replica inspects the source ─► free shard version ─► stored in a ControllerRevision
        │
    ingester ─► stored in status, with a new term if it is another than before ─► RunIngestion

What is stored comes first each time: an operator that dies in between finds it, and goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.controller.answers.client_end_messages import Ending
from tidemark_operator.controller.frontiers.shards import ingesting
from tidemark_operator.controller.ingester_choice import Candidates, Ingester, choose_ingester
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion import Deleter, Doomed, waited_ms
from tidemark_operator.handlers.finalizers import set_finalizer
from tidemark_operator.handlers.publish.publisher import Publisher
from tidemark_operator.handlers.reconcile.source_inspection_queue import Inspections
from tidemark_operator.handlers.reconcile.source_loop_check import reads_own_tables
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.handlers.replica_specs import replica_spec
from tidemark_operator.handlers.revisions import adopted_history_hold
from tidemark_operator.handlers.revisions.adopted_history_hold import keep_history, let_go
from tidemark_operator.handlers.revisions.shard_placement import looking, place_of
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import Body
from tidemark_operator.kube.revisions import Owner, revision_name
from tidemark_operator.planning.adoption import Found, newest_source
from tidemark_operator.planning.shards import REMAP, Place, free_version
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_operator.resources.manifest.data_source import DataSource, DeletionPolicy
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, WriterTerm
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import FilesSource, IngestedTable, IngestionDescription, SourceSpec, SourceTable

PINNED = 1
LOOK_AGAIN_SECONDS = 5.0


class DataSourceReconciler:
    """`again`: looks at a DataSource again."""

    def __init__(self, world: World, publisher: Publisher, deleter: Deleter, again: Callable[[Key], None]) -> None:
        self._world, self._publisher, self._deleter = world, publisher, deleter
        self._inspections = Inspections(again)

    def adopt(self, key: Key, body: Body) -> SourceState:
        """The state of this very object; another of the same name was another one."""
        uid = body["metadata"]["uid"]
        state = self._world.registry.source(key)
        if state is None or state.uid != uid:
            if state is not None:
                self.forget(key)
            state = self._world.registry.put_source(SourceState(key, uid, body["spec"]["instance"]))
            stored = (body.get("status") or {}).get("ingester")
            if stored is not None:
                state.ingester = Ingester(stored.get("replica", ""), WriterTerm(stored["writerTerm"]))
        return state

    async def load(self, state: SourceState, source: DataSource) -> None:
        """Reads what is stored of its tables, if anything is, and sees whether it may be read."""
        running = self._world.running(state.key.namespace, state.instance)
        if running is not None:
            state.refused = reads_own_tables(source.source, running.config.storage_location, state.key.namespace)
        if state.pinned is None:
            name = revision_name(source.meta, PINNED)
            state.pinned = await self._world.revisions.load(state.key.namespace, name, IngestionDescription)
        self._register(state)

    def forget(self, key: Key) -> None:
        """The object is gone: its ingestion stops; its shards stay."""
        self._inspections.leave(key)
        state = self._world.registry.source(key)
        if state is None:
            return
        self._stop(self._world.running(key.namespace, state.instance), state)
        self._world.registry.forget(key)
        book = self._world.fleet.book(key.namespace)
        book.release(ingesting(GlobalId(state.uid)))  # the next one may adopt the very same tables
        let_go(self._world, key)
        for id, _ in _written(state.pinned) if state.pinned else ():
            book.forget(id)
        self._world.revisions.forget(state.uid)

    async def reconcile(self, key: Key, body: Body) -> float | None:
        """Seconds until it must be looked at again, if time alone can change something."""
        source = DataSource.parse(body)
        state = self.adopt(key, body)
        users = self._world.registry.users(key)
        running = self._world.running(key.namespace, source.instance)
        if source.meta.deleting and not users:
            return await self._delete(state, source, running, body)
        takes_along = source.deletion_policy is DeletionPolicy.DELETE
        wanted = bool(users) or (takes_along and not source.meta.deleting)
        await set_finalizer(self._world.kube, self._world.cache, key, wanted)
        if running is None:
            return None
        await self.load(state, source)
        if state.refused is not None:
            running.drop_ingestion(GlobalId(state.uid))
            return None
        if state.pinned is None and not await self._pin(state, source, running):
            return LOOK_AGAIN_SECONDS
        again = await self._ingest(state, source, running)
        return adopted_history_hold.LOOK_AGAIN_SECONDS if again is None and self._keep_history(state) else again

    async def _delete(
        self, state: SourceState, source: DataSource, running: RunningInstance | None, body: Body
    ) -> float | None:
        """Nobody reads it: the ingestion stops, and with deletionPolicy Delete its tables go first."""
        self._stop(running, state)
        if source.deletion_policy is DeletionPolicy.DELETE and state.pinned is not None:
            doomed = [Doomed(id, location) for id, location in _written(state.pinned)]
            if not await self._deleter.delete(state.key, state.uid, running, doomed, waited_ms(body)):
                return 1.0
        await set_finalizer(self._world.kube, self._world.cache, state.key, wanted=False)
        return None

    def _stop(self, running: RunningInstance | None, state: SourceState) -> None:
        """It is deleted: nobody ingests it, and who would wait for more of its tables is told, also on other instances:
        they read them too."""
        if running is not None:
            running.drop_ingestion(GlobalId(state.uid))
        tables = [table.shard.shard_id for table in state.pinned.tables] if state.pinned else []
        ending = Ending(f"DataSource {state.key.name} was deleted")
        self._world.fleet.end_readers(state.key.namespace, tables, ending)

    def report(self, replica: ReplicaId, status: IngestionStatus, namespace: str) -> Key | None:
        """A replica says how an ingestion goes. What another than its ingester says is of before: that it is fenced
        would stand until the ingester has something new to say."""
        for state in self._world.registry.sources(namespace):
            if state.uid == status.id and state.ingester is not None and state.ingester.replica == replica:
                state.report, state.failure = status, failure_of(status)
                return state.key
        return None

    def resume(self, running: RunningInstance) -> None:
        """A replica is about to be told everything: its ingestions are part of that."""
        for state in self._world.registry.sources(running.namespace):
            stopped = self._is_suspended(state.key) or state.refused is not None
            if state.instance == running.name and state.pinned and state.ingester and not stopped:
                replica = ReplicaId(state.ingester.replica)
                running.run_ingestion(replica, state.pinned, state.ingester.term)

    def _is_suspended(self, key: Key) -> bool:
        body = self._world.cache.get(key)
        return body is None or bool(body["spec"].get("suspend", False))

    def _register(self, state: SourceState) -> None:
        if state.pinned is None:
            return
        book = self._world.fleet.book(state.key.namespace)
        lag = self._world.lag_ms(state.key.namespace, state.instance)
        for table in state.pinned.tables:
            book.register(table.shard.shard_id, table.shard.location, lag, endless=True)
        book.register(state.pinned.remap_id, state.pinned.remap_location, lag, endless=True)
        running = self._world.running(state.key.namespace, state.instance)
        if running is None or not running.is_ingesting(state.pinned.id):
            # suspended, say: which bindings tables lack is known once it is ingested again
            book.hold(state.pinned.remap_id, ingesting(state.pinned.id), Frontier.minimum())
        self._keep_history(state)

    def _keep_history(self, state: SourceState) -> bool:
        """Of what was adopted, for now; whether it does."""
        return keep_history(self._world, state.key, state.uid, _written(state.pinned) if state.pinned else ())

    async def _pin(self, state: SourceState, source: DataSource, running: RunningInstance) -> bool:
        """Asks a replica what tables there are, and stores the answer. Whether that is done."""
        try:
            with self._inspections.turn(state.key) as there_is_room:
                if not there_is_room:
                    return False
                answer = await running.inspect(source.source)
        except Waiting:
            return False
        tables = _tables(answer)
        missing = _without_columns(source.source, tables)
        state.schema_unknown_of = missing
        state.failure = IngestionFailure("SourceUnreadable", answer.error) if answer.error else None
        if answer.error or missing:
            return False
        instance = self._world.instance(state.key.namespace, state.instance)
        if instance is None:
            return False
        try:
            place, version = await self._place(state, source, running, instance.location, tables)
        except (Waiting, Rejected) as error:
            state.failure = IngestionFailure(error.reason, str(error))
            return False
        pinned = pin(source, place, version, tables)
        owner = Owner(state.key.resource.api_version, state.key.resource.kind, source.meta)
        await self._world.revisions.store(owner, PINNED, pinned)
        state.pinned = pinned
        self._register(state)
        return True

    async def _place(
        self,
        state: SourceState,
        source: DataSource,
        running: RunningInstance,
        location: str,
        tables: Sequence[SourceTable],
    ) -> tuple[Place, int]:
        """Where its tables are to be, and in which version; raises Waiting or Rejected."""
        names, look = [table.name for table in tables], looking(running)
        place = await place_of(self._world.registry, self._deleter, state, location, source.adopt)
        if source.adopt:
            found = await newest_source(place, names, look)
            if found.version:
                if misfit := found.misfit(place, {table.name: table.columns for table in tables}):
                    raise Rejected("CannotAdopt", cannot_adopt(place, misfit))
                place = found.adopting(place)
                self._adopt(state, place, found)
                return place, found.version
        return place, await free_version(place, [REMAP, *names], 1, look)

    def _adopt(self, state: SourceState, place: Place, found: Found) -> None:
        """Before anybody ingests: the ingester's term must be above theirs."""
        book = self._world.fleet.book(state.key.namespace)
        lag = self._world.lag_ms(state.key.namespace, state.instance)
        for part, shard in found.shards.items():
            book.adopt(*place.address(part, found.version), shard, lag, now_ms())
        keep_history(self._world, state.key, state.uid, [place.address(part, found.version) for part in found.shards])

    async def _ingest(self, state: SourceState, source: DataSource, running: RunningInstance) -> float | None:
        assert state.pinned is not None
        if source.suspend:
            running.drop_ingestion(state.pinned.id)
            return None
        book = self._world.fleet.book(state.key.namespace)
        seen = [shard.term for id, _ in _written(state.pinned) if (shard := book.get(id))]
        chosen = choose_ingester(state.ingester, self._candidates(state, running), seen)
        if chosen is None:
            return LOOK_AGAIN_SECONDS
        if chosen != state.ingester:
            stored = {"ingester": {"replica": chosen.replica, "writerTerm": chosen.term}}
            await self._publisher.store(state.key, stored, state.uid)
            state.ingester = chosen
        running.run_ingestion(ReplicaId(chosen.replica), state.pinned, chosen.term)
        return None if chosen.replica in running.online else LOOK_AGAIN_SECONDS

    def _candidates(self, state: SourceState, running: RunningInstance) -> Candidates:
        instance = self._world.instance(state.key.namespace, state.instance)
        existing = [
            id
            for replica in self._world.replicas(state.key.namespace, state.instance)
            if not replica.suspend and self._world.orchestrator.refusal(replica_spec(replica, instance)) is None
            for id in self._world.processes(replica)
        ]
        silent = running.replicas.get(ReplicaId(state.ingester.replica)) if state.ingester else None
        silent_ms = now_ms() - silent.silent_since_ms if silent and silent.silent_since_ms else 0
        return Candidates(existing, running.online, silent_ms)


def _written(pinned: IngestionDescription) -> list[tuple[ShardId, str]]:
    """Its tables, and its bindings."""
    tables = [(table.shard.shard_id, table.shard.location) for table in pinned.tables]
    return [*tables, (pinned.remap_id, pinned.remap_location)]


def cannot_adopt(place: Place, misfit: str) -> str:
    return (
        f"the tables below {place.root} are not those of this DataSource: {misfit}. Set spec.adopt to false to begin "
        "with new ones beside them, or give them what they miss"
    )


def pin(source: DataSource, place: Place, version: int, tables: tuple[SourceTable, ...]) -> IngestionDescription:
    """What is ingested from now on, for good."""
    remap_id, remap_location = place.address(REMAP, version)
    return IngestionDescription(
        id=GlobalId(source.meta.uid),
        name=source.meta.name,
        source=with_columns(source.source, tables),
        tick_ms=source.tick_ms,
        remap_id=remap_id,
        remap_location=remap_location,
        tables=tuple(
            IngestedTable(GlobalId(f"{source.meta.uid}/{t.name}"), t, place.shard(t.name, version, t.columns))
            for t in tables
        ),
    )


def with_columns(source: SourceSpec, tables: tuple[SourceTable, ...]) -> SourceSpec:
    """Inferred columns become given ones: they are inferred once."""
    if not isinstance(source, FilesSource):
        return source
    known = {table.name: table.columns for table in tables}
    return FilesSource(tuple(replace(t, columns=t.columns or known.get(t.name)) for t in source.tables))


def failure_of(report: IngestionStatus) -> IngestionFailure | None:
    """What an ingester that does not run says: `Reason: what happened`, or only what happened. What is no reason to the
    API server is none: the source's status would not be taken."""
    if report.state == "running" or not report.message or report.message == "starting":
        return None
    word, _, rest = report.message.partition(": ")
    state = report.state.capitalize() if re.fullmatch(r"[A-Za-z]{1,63}", report.state) else "Failed"
    reason = word if rest and re.fullmatch(r"[A-Z][A-Za-z]{1,63}", word) else f"Ingestion{state}"
    return IngestionFailure(reason, report.message)


def _without_columns(source: SourceSpec, tables: tuple[SourceTable, ...]) -> tuple[str, ...]:
    if not isinstance(source, FilesSource):
        return ()
    known = {table.name for table in tables}
    return tuple(t.name for t in source.tables if t.columns is None and t.name not in known)


def _tables(answer: compute_pb2.InspectSourceResponse) -> tuple[SourceTable, ...]:
    try:
        return tuple(codec.decode(table, SourceTable) for table in answer.tables)
    except MalformedPlan as error:
        raise Waiting("SourceUnreadable", f"the replica's answer cannot be read: {error}") from None
