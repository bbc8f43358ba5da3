"""Dataflow: plan when the spec means something else than the active revision, store, mark active, install.

    spec_digest as stored ────────────────────────────────► installed? ─► done
    other spec ─► plan ─┬─ refused ─► Planned=False           ▲
                        ├─ same identity ─► mark ─────────────┤   (white space; nothing is computed anew)
                        ├─ others read it ─► EditRefused      │   (the active revision goes on)
                        └─ another plan ─► store ─► mark ─────┘   (the old one is dropped first)

Storing comes before marking, marking before sending. An operator that dies after storing plans the same again and
finds the stored revision; one that dies after marking finds it active.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemark_operator.catalogue.registry import DataflowState
from tidemark_operator.catalogue.relations import parents
from tidemark_operator.controller.read_policy import DEFAULT_LAG_MS
from tidemark_operator.errors import PlannerUnavailable, Rejected, RevisionUnreadable, Waiting
from tidemark_operator.fleet.running import RunningInstance, now_ms
from tidemark_operator.handlers.deletion import PATIENCE_MS, Deleter, Doomed, waited_ms
from tidemark_operator.handlers.finalizers import set_finalizer
from tidemark_operator.handlers.installer import choose_as_of, forget_stored, hold_stored, install, view_shards
from tidemark_operator.handlers.planner_requests import must_ask, plan_request, remember
from tidemark_operator.handlers.publisher import Publisher
from tidemark_operator.handlers.world import World
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, Body
from tidemark_operator.kube.revisions import Owner, parse_revision
from tidemark_operator.planning.assemble import Named, at, describe
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision
from tidemark_operator.planning.shards import Place, next_term, view_shard
from tidemark_operator.resources.data_source import DeletionPolicy
from tidemark_operator.resources.dataflow import Dataflow
from tidemark_operator.resources.dataflow_conditions import EditRefused, Planning, PlanRefused, Stored
from tidemark_operator.resources.digest import spec_digest
from tidemark_operator.resources.frontier import parse_frontier
from tidemark_operator.resources.status import Revision
from tidemark_protocol.codec import digest
from tidemark_protocol.dataflow import ShardMetadata
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.planning import Planned
from tidemark_protocol.responses import DescribedShard

LOOK_AGAIN_SECONDS = 1.0


class DataflowReconciler:
    def __init__(self, world: World, publisher: Publisher, deleter: Deleter) -> None:
        self._world, self._publisher, self._deleter = world, publisher, deleter

    def adopt(self, key: Key, body: Body) -> DataflowState:
        """The state of this very object; another of the same name was another one."""
        uid = body["metadata"]["uid"]
        state = self._world.registry.dataflow(key)
        if state is not None and state.uid != uid:
            self.forget(key)
            state = None
        return state or self._world.registry.put_dataflow(DataflowState(key, uid, body["spec"]["instance"]))

    def read_spec(self, state: DataflowState, body: Body) -> Dataflow:
        """Takes what the spec says into the state; raises ResourceError."""
        dataflow = Dataflow.parse(body)
        state.suspended, state.deleting = dataflow.suspend, False
        state.requested_as_of = dataflow.as_of
        lag = self._world.lag_ms(state.key.namespace, dataflow.instance)
        state.lag_ms = dataflow.read_policy.lag_ms if dataflow.read_policy else lag or DEFAULT_LAG_MS
        return dataflow

    async def load(self, state: DataflowState, body: Body) -> None:
        """Reads the revision that status names, if we do not have it, and keeps its inputs readable."""
        marked = (body.get("status") or {}).get("revision")
        if state.active is not None or not marked:
            return
        revision = await self._world.revisions.load(state.key.namespace, marked["name"], DataflowRevision)
        if revision is None:
            return
        state.reached = reached(body)
        number = int(marked["name"].rpartition("-r")[2])
        generation = int(marked.get("generation", 0))
        state.active = ActiveRevision(marked["name"], number, generation, marked["specDigest"], revision)
        hold_stored(self._world.fleet.book(state.key.namespace), state)

    def forget(self, key: Key) -> bool:
        """The object is gone: so is what replicas run of it. Its tables stay. Whether anything was known of it."""
        state = self._world.registry.dataflow(key)
        if state is None:
            return False
        running = self._world.running(key.namespace, state.instance)
        if running is not None:
            running.drop(state.owner)
        self._world.registry.forget(key)
        forget_stored(self._world.fleet.book(key.namespace), state)
        return True

    async def reconcile(self, key: Key, body: Body) -> float | None:
        """Seconds until it must be looked at again, if time alone can change something."""
        state = self.adopt(key, body)
        dataflow = self.read_spec(state, body)
        users = self._world.registry.users(key)
        state.deleting = dataflow.meta.deleting and not users
        running = self._world.running(key.namespace, dataflow.instance)
        if state.suspended or running is None:
            hold_stored(self._world.fleet.book(key.namespace), state)
        if state.deleting:
            return await self._delete(state, dataflow, running, body)
        takes_along = dataflow.deletion_policy is DeletionPolicy.DELETE
        wanted = bool(users) or (takes_along and not dataflow.meta.deleting)
        await set_finalizer(self._world.kube, self._world.cache, key, wanted)
        if running is None:
            return None
        try:
            await self.load(state, body)
        except RevisionUnreadable as error:
            state.plan = PlanRefused("RevisionUnreadable", str(error))
            return None
        return await self._advance(state, dataflow, running)

    async def _delete(
        self, state: DataflowState, dataflow: Dataflow, running: RunningInstance | None, body: Body
    ) -> float | None:
        """Nobody reads it: replicas drop it, and with deletionPolicy Delete its tables go first."""
        if running is not None:
            running.drop(state.owner)
        if dataflow.deletion_policy is DeletionPolicy.DELETE:
            waited = waited_ms(body)
            still = running.core.dataflows.get(state.owner) if running else None
            if still is not None and waited < PATIENCE_MS:
                return LOOK_AGAIN_SECONDS
            shards = view_shards(state.active.revision.description) if state.active else []
            doomed = [Doomed(shard.shard_id, shard.location) for shard in shards]
            if not await self._deleter.delete(state.key, state.uid, running, doomed, waited):
                return LOOK_AGAIN_SECONDS
        await set_finalizer(self._world.kube, self._world.cache, state.key, wanted=False)
        return None

    async def _advance(self, state: DataflowState, dataflow: Dataflow, running: RunningInstance) -> float | None:
        """Plans if need be, then installs; what holds it up goes into the state."""
        try:
            await self._plan(state, dataflow, running)
            await self._learn(state, running)
            install(running, self._world.registry, state)
            state.waiting = ()
        except Waiting as waiting:
            state.waiting = (str(waiting),)
            return LOOK_AGAIN_SECONDS
        except PlannerUnavailable as error:
            state.plan = Planning(str(error))
            return LOOK_AGAIN_SECONDS
        except Rejected as rejected:
            await self._refuse(state, PlanRefused(rejected.reason, str(rejected)))
        again_ms = state.answer.again_ms if state.answer else None
        return None if again_ms is None else max(0.0, (again_ms - now_ms()) / 1000)

    async def _plan(self, state: DataflowState, dataflow: Dataflow, running: RunningInstance) -> None:
        wanted = spec_digest(dataflow)
        if state.active is not None and state.active.spec_digest == wanted:
            state.plan = Stored(state.active.name)
            return
        planned = await self._ask(state, dataflow)
        if planned is None:
            return
        state.plan = Stored(state.active.name if state.active else "")
        shards = await self._view_shards(state, dataflow, planned, running)
        description, identity = describe(Named(state.key.name, state.uid), planned, shards)
        if state.active is not None and state.active.revision.identity == identity:
            await self._mark(state, replace(state.active, spec_digest=wanted, generation=dataflow.meta.generation))
            return
        users = self._world.registry.users(state.key) if state.active else []
        if users:
            state.plan = EditRefused(tuple(f"{u.resource.kind} {u.name}" for u in users))
            return
        as_of = choose_as_of(running, self._world.registry, state, description, first=True)
        namespace = state.key.namespace
        reads = parents(
            self._world.registry.sources(namespace), self._world.registry.dataflows(namespace), planned.references
        )
        book = running.core.shards
        seen = [shard.term for s in view_shards(description) if (shard := book.get(s.shard_id))]
        term = next_term(*seen, state.active.revision.writer_term if state.active else 0)
        revision = DataflowRevision(at(description, as_of), planned.exports, reads, identity, term, wanted)
        state.claims = reads
        try:
            await self._activate(state, dataflow, revision)
        finally:
            state.claims = ()

    async def _learn(self, state: DataflowState, running: RunningInstance) -> None:
        """A continual task begins exactly where its table ends: a replica says where that is, if none has."""
        if state.active is None or (description := state.active.revision.description).continual_task is None:
            return
        book = running.core.shards
        shards = [book.register(s.shard_id, s.location, state.lag_ms) for s in view_shards(description)]
        if unknown := [(shard.id, shard.location) for shard in shards if shard.frontiers is None]:
            for described in (await running.describe(unknown)).shards:
                book.described(described)

    async def _ask(self, state: DataflowState, dataflow: Dataflow) -> Planned | None:
        """The planner's plan of this spec; None where it refused, and the state says why. The same question, of the
        same catalogue, is asked once, unless it was the planner that failed."""
        registry, namespace = self._world.registry, state.key.namespace
        request = plan_request(dataflow, registry.sources(namespace), registry.dataflows(namespace))
        question = digest(request)
        if must_ask(state.answer, question, now_ms()):
            said = await self._world.planner.plan(request)
            state.answer = remember(dataflow, said, question, state.answer, now_ms())
        assert state.answer is not None
        outcome = state.answer.outcome
        if isinstance(outcome, Planned):
            return outcome
        state.plan = outcome
        if isinstance(outcome, PlanRefused):
            await self._refuse(state, outcome)
        return None

    async def _refuse(self, state: DataflowState, refused: PlanRefused) -> None:
        state.plan = refused
        await self._world.events.warn(state.key, state.uid, refused.reason, refused.message)

    async def _view_shards(
        self, state: DataflowState, dataflow: Dataflow, planned: Planned, running: RunningInstance
    ) -> dict[str, ShardMetadata]:
        place = Place.of(running.config.storage_location, state.key.namespace, state.key.name, state.uid)

        async def look(shards: Sequence[tuple[ShardId, str]]) -> Sequence[DescribedShard]:
            return (await running.describe(shards)).shards

        shards: dict[str, ShardMetadata] = {}
        for export in planned.exports:
            if export.kind != "index":
                before = state.active.revision.written(export.name) if state.active else None
                shards[export.name] = await view_shard(place, export, before, look)
        return shards

    async def _activate(self, state: DataflowState, dataflow: Dataflow, revision: DataflowRevision) -> None:
        """Inputs protected, the plan stored, the mark set: only then may anything be sent."""
        for parent in revision.reads:
            resource = DATA_SOURCES if parent.kind == DATA_SOURCES.kind else DATAFLOWS
            parent_key = Key(resource, state.key.namespace, parent.name)
            if not await set_finalizer(self._world.kube, self._world.cache, parent_key, wanted=True):
                raise Waiting("WaitingForInput", f"{parent} is being deleted")
        stored = await self._world.revisions.of(dataflow.meta)
        same = [b for b in stored if parse_revision(b, DataflowRevision).identity == revision.identity]
        if same:
            name, number = same[-1]["metadata"]["name"], int(same[-1]["revision"])
            revision = parse_revision(same[-1], DataflowRevision)
        else:
            number = 1 + max((int(body["revision"]) for body in stored), default=0)
            owner = Owner(state.key.resource.api_version, state.key.resource.kind, dataflow.meta)
            name = await self._world.revisions.store(owner, number, revision)
        wanted = spec_digest(dataflow)
        await self._mark(state, ActiveRevision(name, number, dataflow.meta.generation, wanted, revision))
        hold_stored(self._world.fleet.book(state.key.namespace), state)
        await self._world.revisions.prune(dataflow.meta, keep=name)

    async def _mark(self, state: DataflowState, active: ActiveRevision) -> None:
        revision = active.revision
        document = Revision(
            active.name,
            active.generation,
            active.spec_digest,
            revision.identity,
            revision.description.as_of,
            revision.writer_term,
        ).document()
        await self._publisher.store(state.key, {"revision": document}, state.uid)
        state.active, state.plan = active, Stored(active.name)


def reached(body: Body) -> dict[GlobalId, Frontier]:
    """Write frontiers that the status shows, by compute id: what users saw never goes back."""
    exports = (body.get("status") or {}).get("exports") or ()
    shown = {GlobalId(e["id"]): parse_frontier(e.get("writeFrontier")) for e in exports if "id" in e}
    return {id: frontier for id, frontier in shown.items() if frontier is not None}
