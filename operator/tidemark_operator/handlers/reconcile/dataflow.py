"""Reconciles a Dataflow: one object, whatever has happened to it.

    look     the object, its readers, its instance
    decide   Delete, AwaitInstance or Run (a pure function)
    apply    Delete         handlers/deletion/dataflow_deletion.py
             AwaitInstance  its instance does not exist: its inputs are held
             Run            plan ─► install ─► take over, if this Dataflow's edit began a replacement

Each step of Run looks at the state, decides, and records its obstacle in the state. The active revision is installed
also while a pending one has an obstacle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_operator.catalogue.dataflow_state import DataflowSpec, DataflowState, Obstacle
from tidemark_operator.errors import PlannerBusy, PlannerUnavailable, RevisionUnreadable, Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.dataflow_deletion import DataflowDeletion
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.finalizers import set_finalizer
from tidemark_operator.handlers.holds import adopted_history_hold
from tidemark_operator.handlers.holds.adopted_history_hold import hold_history
from tidemark_operator.handlers.holds.revision_holds import hold_inputs
from tidemark_operator.handlers.hydration.suspicions import load_suspicions, release_suspicions
from tidemark_operator.handlers.publish.publisher import StatusPublisher
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.installer import install, learn_task_tables
from tidemark_operator.handlers.revisions.plan_revision import RevisionPlanner
from tidemark_operator.handlers.revisions.planner_queue import PlannerQueue
from tidemark_operator.handlers.revisions.revision_ends import note_ends
from tidemark_operator.handlers.revisions.revision_marks import RevisionMarks
from tidemark_operator.handlers.revisions.takeover import TakeOver
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import Body
from tidemark_operator.planning.revision import view_shards
from tidemark_operator.resources.conditions.dataflow import Planning, PlanRefused
from tidemark_operator.resources.manifest.data_source import DeletionPolicy
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_operator.resources.manifest.meta import RELEASE, annotation

POLL_SECONDS = 1.0
IN_LINE_SECONDS = 30.0
"""The pause of a Dataflow in line for the planner. It is reconciled earlier when it is first in line."""


@dataclass(frozen=True)
class Delete:
    """The object is deleted, and no Dataflow reads it."""


@dataclass(frozen=True)
class AwaitInstance:
    """Its instance does not exist. `finalizer`: whether the object needs ours."""

    finalizer: bool


@dataclass(frozen=True)
class Run:
    """The wanted revision is to be planned and installed. `finalizer`: whether the object needs ours."""

    finalizer: bool


def decide(dataflow: Dataflow, *, has_readers: bool, has_instance: bool) -> Delete | AwaitInstance | Run:
    """Decide what becomes of the object. A deleted object that has readers runs until the last reader is gone."""
    if dataflow.meta.deleting and not has_readers:
        return Delete()
    deletes_tables = dataflow.deletion_policy is DeletionPolicy.DELETE and not dataflow.meta.deleting
    finalizer = has_readers or deletes_tables
    return Run(finalizer) if has_instance else AwaitInstance(finalizer)


class DataflowReconciler:
    """`again`: puts a Dataflow first in the work queue."""

    def __init__(
        self, context: ReconcileContext, publisher: StatusPublisher, deleter: TableDeleter, again: Callable[[Key], None]
    ) -> None:
        self._context = context
        self._marks = RevisionMarks(context, publisher)
        self._queue = PlannerQueue(again)
        self._planner = RevisionPlanner(context, self._marks, deleter, self._queue)
        self._take_over = TakeOver(context, self._marks)
        self._deletion = DataflowDeletion(context, deleter)

    async def reconcile(self, key: Key, body: Body) -> float | None:
        """Returns the seconds until it must be reconciled again, if time alone can change something. Raises ApiError,
        ResourceError."""
        self._queue.leave(key)
        try:
            return await self._reconcile(key, body)
        finally:
            self._queue.pass_on()

    async def _reconcile(self, key: Key, body: Body) -> float | None:
        state = self.adopt(key, body)
        dataflow = self.read_spec(state, body)
        has_readers = bool(self._context.registry.users(key))
        running = self._context.running(key.namespace, dataflow.instance)
        decision = decide(dataflow, has_readers=has_readers, has_instance=running is not None)
        if state.spec.suspended or running is None:
            hold_inputs(self._context.fleet.book(key.namespace), state)
        if isinstance(decision, Delete):
            return await self._deletion.delete(state, dataflow, body)
        # also without an instance: edits of Dataflows that it reads wait for its status
        await self._marks.catch_up(state, dataflow.meta)
        await set_finalizer(self._context.kube, self._context.cache, key, decision.finalizer)
        if isinstance(decision, AwaitInstance) or running is None:
            return None
        return await self._run(state, dataflow, running, body)

    async def _run(
        self, state: DataflowState, dataflow: Dataflow, running: RunningInstance, body: Body
    ) -> float | None:
        try:
            await self.load(state, body)
        except RevisionUnreadable as error:
            state.obstacles.planning = PlanRefused("RevisionUnreadable", str(error))
            return None
        note_ends(running, state)
        again = await self._plan(state, dataflow, running)
        obstacle = await learn_task_tables(running, state) or install(running, self._context.registry, state)
        if obstacle is not None:
            again = await self._warn_or_wait(state, obstacle, again)
        if state.pending is not None:
            again = None if await self._take_over.attempt(state) else POLL_SECONDS
            if again is None:
                await self._marks.prune(state, dataflow.meta)
        holds_history = self._hold_history(state)
        if again is not None:
            return again
        answer = state.planning.answer
        if answer is None or answer.again_ms is None:
            return adopted_history_hold.POLL_SECONDS if holds_history else None
        return max(0.0, (answer.again_ms - now_ms()) / 1000)

    async def _plan(self, state: DataflowState, dataflow: Dataflow, running: RunningInstance) -> float | None:
        """Seconds until planning must be tried again, if it waits for something."""
        again: float | None = None
        try:
            state.obstacles.planning = await self._planner.revise(state, dataflow, running)
        except (Waiting, PlannerUnavailable) as error:
            state.obstacles.planning, again = Planning(str(error)), POLL_SECONDS
        except PlannerBusy:
            state.obstacles.planning, again = Planning(), IN_LINE_SECONDS
        return again

    async def _warn_or_wait(self, state: DataflowState, obstacle: Obstacle, again: float | None) -> float | None:
        """Warn by an Event where the obstacle of an installation is a failure; anything else is tried again."""
        if not obstacle.failed:
            return POLL_SECONDS
        await self._context.events.warn(state.key, state.uid, obstacle.reason, obstacle.message)
        return again

    def adopt(self, key: Key, body: Body) -> DataflowState:
        """The state of this object. That of an earlier object of the same name is forgotten."""
        uid = body["metadata"]["uid"]
        state = self._context.registry.dataflow(key)
        if state is not None and state.uid != uid:
            self.forget(key)
            state = None
        return state or self._context.registry.put_dataflow(DataflowState(key, uid, body["spec"]["instance"]))

    def read_spec(self, state: DataflowState, body: Body) -> Dataflow:
        """Takes the spec into the state. An instance whose read policy cannot be read changes no lag.

        Raises:
            ResourceError: the object does not have the form of a Dataflow.
        """
        dataflow = Dataflow.parse(body)
        instances = self._context.lag_ms(state.key.namespace, dataflow.instance)
        lag = dataflow.read_policy.lag_ms if dataflow.read_policy is not None else instances
        digest = spec_digest(dataflow)
        if digest != state.spec.digest and isinstance(state.obstacles.planning, PlanRefused):
            state.obstacles.planning = Planning()  # the refusal was of the spec before
        state.spec = DataflowSpec(
            digest=digest,
            suspended=dataflow.suspend,
            deleting=dataflow.meta.deleting and not self._context.registry.users(state.key),
            as_of=dataflow.as_of,
            lag_ms=state.spec.lag_ms if lag is None else max(lag, dataflow.history_ms),
            release=annotation(body, RELEASE),
            generation=dataflow.meta.generation,
        )
        release_suspicions(state)
        return dataflow

    async def load(self, state: DataflowState, body: Body) -> None:
        """Reads the revisions that the status names, unless they are known. Raises RevisionUnreadable."""
        if state.active is not None:
            return
        status = body.get("status") or {}
        await self._marks.load(state, status)
        if state.active is not None:
            load_suspicions(state, status)
            self._hold_history(state)

    def _hold_history(self, state: DataflowState) -> bool:
        """Holds adopted tables, or releases them. Returns whether any is held. Before the first plan, planning does
        it."""
        written = [s for mark in state.marks for s in view_shards(mark.revision.description)]
        tables = [(shard.shard_id, shard.location) for shard in written]
        return state.active is not None and hold_history(self._context, state.key, state.uid, tables)

    def forget(self, key: Key) -> bool:
        """The object is gone. Returns whether anything was remembered of it."""
        state = self._context.registry.dataflow(key)
        if state is None:
            return False
        self._queue.leave(key)
        self._deletion.forget(state)
        return True

    def is_in_line(self, key: Key) -> bool:
        """Whether it has no active revision and is in line for the planner: a change of other objects counts then."""
        state = self._context.registry.dataflow(key)
        return state is not None and state.active is None and self._queue.is_in_line(key)
