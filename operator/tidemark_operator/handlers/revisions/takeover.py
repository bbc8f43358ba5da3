"""When a replacement takes over: all of its members at one moment, or none.

every second, for the Dataflow that was edited:
members ─► judge ─┬─ held back ─► every member's status says by what
                  └─ ready ─► commit (one write) ─► promoted in memory ─► installed: may write, the old is dropped
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from tidemark_operator.catalogue.registry import DataflowState, HeldBack, Registry
from tidemark_operator.catalogue.replacement_closure import closure, dependants
from tidemark_operator.controller.frontiers.collection import Collection, failures
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.hydration.quarantine import Standing
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.incompatible_readers import told, too_old
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.handlers.revisions.installer import exporters_first, install, note_end
from tidemark_operator.handlers.revisions.replacement_decision import Keep, Member, cannot_run_beside, decide, judge
from tidemark_operator.handlers.revisions.revision_marks import Marks
from tidemark_operator.planning.revision import ActiveRevision
from tidemark_operator.resources.manifest.meta import RELEASE

Running = Callable[[DataflowState], RunningInstance | None]


class TakeOver:
    def __init__(self, world: World, marks: Marks) -> None:
        self._world, self._marks = world, marks

    async def attempt(self, root: DataflowState) -> bool:
        """Whether a replacement that this Dataflow's edit began has taken over."""
        async with self._marks.lock(root.key.namespace):
            if root.pending is None or root.pending.together.dataflow != root.key.name:
                return False
            for other in self._world.registry.dataflows(root.key.namespace):
                note_end(self._running(other), other)
            members, held = held_back(root, self._world.registry, self._running, now_ms())
            for member in members:
                member.held_back = held
            if held is not None:
                return False
            await self._marks.commit(root, members)
        self._install(root, members)
        return True

    def _install(self, root: DataflowState, members: Sequence[DataflowState]) -> None:
        """Now, so that the tables' writers change without a pause; whatever cannot be yet is left to its reconcile."""
        for state, _ in exporters_first([(m, m.active) for m in members if m.active is not None]):
            running = self._running(state)
            if running is not None:
                try:
                    install(running, self._world.registry, state, edited=root.key.name)
                except (Waiting, Rejected) as error:
                    state.waiting = (str(error),)

    def _running(self, state: DataflowState) -> RunningInstance | None:
        return self._world.running(state.key.namespace, state.instance)


def held_back(
    root: DataflowState, registry: Registry, running: Running, now_ms: int
) -> tuple[list[DataflowState], HeldBack | None]:
    """Who takes over with this Dataflow, and what holds them back."""
    dataflows = registry.dataflows(root.key.namespace)
    members = closure(root, dataflows)
    names = {member.key.name for member in members}
    for other in dataflows:
        if names & {parent.name for parent in other.claims if parent.kind == root.key.resource.kind}:
            return members, HeldBack(f"Dataflow {other.key.name}, which reads it, is just being planned")
    if late := _late(root, dataflows, names):
        return members, HeldBack(f"Dataflow {late} is just being replaced with another")
    return members, judge((_member(root, m, dataflows, running(m)) for m in members), now_ms)


def _late(root: DataflowState, dataflows: Sequence[DataflowState], members: Set[str]) -> str:
    """Whose status does not say yet that it took over: of the members, and of all that read the edited one. It says by
    which of its revisions: an operator that began when that was replaced too would not know. Of what is deleted it
    need not: whatever serves goes."""
    unmarked = {dataflow.key.name for dataflow in dataflows if dataflow.unmarked and not dataflow.deleting}
    return min(unmarked & (members | dependants(root, dataflows)), default="") if unmarked else ""


def _member(
    root: DataflowState, state: DataflowState, dataflows: Sequence[DataflowState], running: RunningInstance | None
) -> Member:
    assert root.pending is not None
    kept = decide(state, state.spec_digest, dataflows) == Keep()
    if state.active is None or state.pending is None or not kept or state.pending.together != root.pending.together:
        return Member(state.key.name, False, obstacle=state.obstacle, waits=state.pending_waiting)
    mark = state.pending.mark
    installed = running.dataflow(state.installation(mark)) if running else None
    collections = running.collections_of(installed.owner) if running and installed else []
    hydrated = sum(c.hydrated for c in collections)
    return Member(
        state.key.name,
        True,
        obstacle=state.obstacle,
        failure=_failure(collections)
        or _too_old(running, collections)
        or ("" if hydrated == len(collections) else quarantine(state, mark)),
        waits=state.pending_waiting or _may_be_finished(installed, collections),
        at_once=not state.runs or cannot_run_beside(state.active.revision, mark.revision),
        hydrated=hydrated,
        exports=len(collections),
        level_ms=installed.level_ms if installed else None,
    )


def quarantine(state: DataflowState, mark: ActiveRevision | None) -> str:
    """Why a revision is not scheduled any more, if so, and what can be done about it."""
    suspicion = state.suspicions.get(mark.name) if mark else None
    if suspicion is None or suspicion.standing is not Standing.QUARANTINED:
        return ""
    replicas = ", ".join(dict.fromkeys(death.replica for death in suspicion.deaths))
    return (
        f"it was hydrating when a replica died, or ran out of memory, {len(suspicion.deaths)} times in a row "
        f"({replicas}): edit it; or annotate it with {RELEASE} and a new value to have it tried again, on replicas "
        "with more memory where that is what it lacked"
    )


def _may_be_finished(installed: Dataflow | None, collections: Sequence[Collection]) -> str:
    """A replica says that the predecessor has come to its end in the meantime: once that is known, this revision gives
    way to one with another table (`is_outrun`). A task goes on from what is there."""
    read_only = installed.read_only if installed and installed.description.continual_task is None else frozenset()
    said = (on.write for c in collections if c.id in read_only for on in c.replicas.values())
    if not any(write is not None and write.is_empty for write in said):
        return ""
    return "waits until it is known whether the table that it would go on with was finished meanwhile"


def _failure(collections: Sequence[Collection]) -> str:
    """What replicas say of an export that fails on all that were told of it."""
    for collection in collections:
        there = sorted((name, failures(on)) for name, on in collection.replicas.items() if not on.lacks)
        if there and all(failed for _, failed in there):
            replica, (first, *_) = there[0]
            return f"{first} (on replica {replica})"
    return ""


def _too_old(running: RunningInstance | None, collections: Sequence[Collection]) -> str:
    """Where nobody can be told of it."""
    lacks = None if running is None else too_old(running, collections, now_ms())
    return "" if lacks is None else told(lacks)
