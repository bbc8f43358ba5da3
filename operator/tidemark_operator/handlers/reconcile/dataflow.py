"""Dataflow: what becomes of one object, whatever happened to it.

    its status says what others' edits have made of it ─► revise ─► install ─► take over, if its edit began that

What serves is installed also while a revision that is to take over waits, or cannot be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from tidemark_operator.catalogue.registry import DataflowState, PendingRevision, Together
from tidemark_operator.controller.answers.client_end_messages import Ending
from tidemark_operator.controller.hydration.quarantine import Death, Suspicion, unless_released
from tidemark_operator.errors import GaveWay, PlannerUnavailable, Rejected, RevisionUnreadable, Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion import PATIENCE_MS, Deleter, Doomed, waited_ms
from tidemark_operator.handlers.finalizers import set_finalizer
from tidemark_operator.handlers.publish.publisher import Publisher
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.handlers.revisions import adopted_history_hold
from tidemark_operator.handlers.revisions.adopted_history_hold import keep_history, let_go
from tidemark_operator.handlers.revisions.installer import forget_stored, hold_stored, install, note_end, why_dropped
from tidemark_operator.handlers.revisions.plan_revision import Reviser
from tidemark_operator.handlers.revisions.planner_queue import PlannersTurn
from tidemark_operator.handlers.revisions.revision_marks import Marks
from tidemark_operator.handlers.revisions.takeover import TakeOver
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import Body
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision, view_shards
from tidemark_operator.resources.conditions.dataflow import Planning, PlanRefused
from tidemark_operator.resources.conditions.frontier import parse_frontier
from tidemark_operator.resources.manifest.data_source import DeletionPolicy
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_operator.resources.manifest.meta import RELEASE
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId

LOG = logging.getLogger(__name__)
LOOK_AGAIN_SECONDS = 1.0
MOST_RELEASE = 1024
"""Characters of the annotation that count: it is written down with the blame that it takes back."""
GAVE_WAY_SECONDS = 30.0
"""It is told when it is its turn."""


class DataflowReconciler:
    """`again`: looks at a Dataflow again, before all others."""

    def __init__(self, world: World, publisher: Publisher, deleter: Deleter, again: Callable[[Key], None]) -> None:
        self._world, self._deleter = world, deleter
        self._marks = Marks(world, publisher)
        self._turn = PlannersTurn(again)
        self._reviser = Reviser(world, self._marks, deleter, self._turn)
        self._take_over = TakeOver(world, self._marks)

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
        state.release = (body["metadata"].get("annotations") or {}).get(RELEASE, "")[:MOST_RELEASE]
        left = {mark.name: unless_released(state.suspicions.get(mark.name), state.release) for mark in state.marks}
        state.suspicions = {name: suspicion for name, suspicion in left.items() if suspicion is not None}
        state.requested_as_of, state.spec_digest = dataflow.as_of, spec_digest(dataflow)
        own, instances = dataflow.read_policy, self._world.lag_ms(state.key.namespace, dataflow.instance)
        lag = own.lag_ms if own is not None else instances
        state.lag_ms = state.lag_ms if lag is None else lag
        return dataflow

    async def load(self, state: DataflowState, body: Body) -> None:
        """Reads the revisions that status names, if we do not have them, and keeps their inputs readable."""
        status = body.get("status") or {}
        if state.active is not None or not status.get("revision"):
            return
        active = await self._marked(state, status["revision"])
        if active is None:
            return
        if pending := status.get("pending"):
            await self._load_pending(state, pending)
        state.active, state.reached, state.suspicions = active, reached(status), suspicions(status)
        hold_stored(self._world.fleet.book(state.key.namespace), state)
        self._keep_history(state)

    def _keep_history(self, state: DataflowState) -> bool:
        """Of what was adopted, for now; whether it does. Before there is a plan, planning sees to it."""
        written = [s for mark in state.marks for s in view_shards(mark.revision.description)]
        shards = [(shard.shard_id, shard.location) for shard in written]
        return state.active is not None and keep_history(self._world, state.key, state.uid, shards)

    async def _load_pending(self, state: DataflowState, status: Mapping[str, Any]) -> None:
        """One that cannot be read is none: it is planned again."""
        try:
            mark = await self._marked(state, status["revision"])
        except RevisionUnreadable as error:
            LOG.warning("%s: its pending revision is planned again: %s", state.key, error)
            return
        together = status["together"]
        if mark is not None:
            state.pending = PendingRevision(mark, Together(together["dataflow"], together["revision"]))

    async def _marked(self, state: DataflowState, marked: Mapping[str, Any]) -> ActiveRevision | None:
        revision = await self._world.revisions.load(state.key.namespace, marked["name"], DataflowRevision)
        number = int(marked["name"].rpartition("-r")[2])
        generation = int(marked.get("generation", 0))
        if revision is None:
            return None
        return ActiveRevision(marked["name"], number, generation, marked["specDigest"], revision)

    def forget(self, key: Key) -> bool:
        """The object is gone: so is what replicas run of it. Its tables stay. Whether anything was known of it."""
        state = self._world.registry.dataflow(key)
        if state is None:
            return False
        running = self._world.running(key.namespace, state.instance)
        state.deleting = True
        self._stop(running, state)
        self._world.registry.forget(key)
        let_go(self._world, key)
        self._turn.leave(key)
        forget_stored(self._world.fleet.book(key.namespace), state)
        self._world.revisions.forget(state.uid)
        return True

    def only_waits_to_be_planned(self, key: Key) -> bool:
        """Nothing serves, and it comes when it is its turn: that others changed is seen then."""
        state = self._world.registry.dataflow(key)
        return state is not None and state.active is None and self._turn.is_in_line(key)

    async def reconcile(self, key: Key, body: Body) -> float | None:
        """Seconds until it must be looked at again, if time alone can change something."""
        self._turn.leave(key)
        try:
            return await self._reconcile(key, body)
        finally:
            self._turn.pass_on()

    async def _reconcile(self, key: Key, body: Body) -> float | None:
        state = self.adopt(key, body)
        dataflow = self.read_spec(state, body)
        users = self._world.registry.users(key)
        state.deleting = dataflow.meta.deleting and not users
        running = self._world.running(key.namespace, dataflow.instance)
        if state.suspended or running is None:
            hold_stored(self._world.fleet.book(key.namespace), state)
        if state.deleting:
            return await self._delete(state, dataflow, running, body)
        await self._marks.catch_up(state, dataflow.meta)  # also without an instance: edits of what it reads wait for it
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
        self._stop(running, state)
        if dataflow.deletion_policy is DeletionPolicy.DELETE:
            waited = waited_ms(body)
            still = [mark for mark in state.marks if running and running.dataflow(state.installation(mark))]
            if still and waited < PATIENCE_MS:
                return LOOK_AGAIN_SECONDS
            shards = {s.shard_id: s for mark in state.marks for s in view_shards(mark.revision.description)}
            doomed = [Doomed(shard.shard_id, shard.location) for shard in shards.values()]
            if not await self._deleter.delete(state.key, state.uid, running, doomed, waited):
                return LOOK_AGAIN_SECONDS
        await set_finalizer(self._world.kube, self._world.cache, state.key, wanted=False)
        return None

    def _stop(self, running: RunningInstance | None, state: DataflowState) -> None:
        """It is deleted: replicas drop it, and who would wait for more of its tables is told, also where nothing of it
        was installed."""
        if running is not None:
            install(running, self._world.registry, state)
        tables = [s.shard_id for mark in state.marks for s in view_shards(mark.revision.description)]
        self._world.fleet.end_readers(state.key.namespace, tables, Ending(why_dropped(state)))

    async def _advance(self, state: DataflowState, dataflow: Dataflow, running: RunningInstance) -> float | None:
        """Plans if need be, installs, takes over; what holds it up goes into the state."""
        note_end(running, state)
        again = await self._revise(state, dataflow, running)
        try:
            await self._reviser.learn(state, running)
            install(running, self._world.registry, state)
            state.waiting = ()
        except Waiting as waiting:
            state.waiting, again = (str(waiting),), LOOK_AGAIN_SECONDS
        except Rejected as rejected:
            if state.pending is None or not state.edited:  # else what was planned since is to mend it
                state.plan = PlanRefused(rejected.reason, str(rejected))
            await self._world.events.warn(state.key, state.uid, rejected.reason, str(rejected))
        if state.pending is not None:
            again = None if await self._take_over.attempt(state) else LOOK_AGAIN_SECONDS
            if again is None:
                await self._marks.prune(state, dataflow.meta)
        again_ms = state.answer.again_ms if state.answer else None
        keeps = self._keep_history(state)
        if again is not None:
            return again
        if again_ms is None:
            return adopted_history_hold.LOOK_AGAIN_SECONDS if keeps else None
        return max(0.0, (again_ms - now_ms()) / 1000)

    async def _revise(self, state: DataflowState, dataflow: Dataflow, running: RunningInstance) -> float | None:
        """Seconds until it is to be tried again, where it waits for something."""
        try:
            await self._reviser.revise(state, dataflow, running)
        except Waiting as waiting:
            if state.active is None:
                state.waiting = (str(waiting),)
            else:
                state.pending_waiting = str(waiting)
            if state.active is None or state.edited:
                # what was said before, of the planner or of the inputs, is over
                state.plan = Planning(str(waiting))
            return LOOK_AGAIN_SECONDS
        except PlannerUnavailable as error:
            if state.active is None or state.edited:
                state.plan = Planning(str(error))
            return LOOK_AGAIN_SECONDS
        except GaveWay:
            if state.active is None or state.edited:
                state.plan = Planning()
            return GAVE_WAY_SECONDS
        except Rejected:
            return None
        return None


def suspicions(status: Mapping[str, Any]) -> dict[str, Suspicion]:
    """Blame that an earlier operator wrote down."""
    listed = status.get("suspects") or ()
    found = (
        Suspicion(
            s["revision"],
            tuple(Death(d["replica"], d["incarnation"]) for d in s["deaths"]),
            s["release"],
        )
        for s in listed
    )
    return {suspicion.revision: suspicion for suspicion in found}


def reached(status: Mapping[str, Any]) -> dict[GlobalId, Frontier]:
    """Write frontiers that the status shows, by compute id: what users saw never goes back."""
    exports = [*(status.get("exports") or ()), *((status.get("pending") or {}).get("exports") or ())]
    shown = {GlobalId(e["id"]): parse_frontier(e.get("writeFrontier")) for e in exports if "id" in e}
    return {id: frontier for id, frontier in shown.items() if frontier is not None}
