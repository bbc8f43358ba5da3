"""The takeover of a replacement: all of its members at one moment, or none.

every second, for the Dataflow whose edit began it:
members ─► judge ─┬─ an obstacle ─► every member's status has it
                  └─ none        ─► commit (one write) ─► promoted in memory ─► installed: the new revisions may
                                                                                 write, the old ones are dropped
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from tidemark_operator.catalogue.dataflow_state import DataflowState, Obstacle
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.replacement_closure import closure, dependants
from tidemark_operator.controller.frontiers.collection import Collection, failures
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.hydration.quarantine import HydrationStanding
from tidemark_operator.fleet.clients.incompatible_readers import missing_features_text, too_old
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.installer import exporters_first, install
from tidemark_operator.handlers.revisions.replacement_decision import (
    Keep,
    ReplacementMember,
    cannot_run_beside,
    decide,
    judge,
)
from tidemark_operator.handlers.revisions.revision_ends import note_ends
from tidemark_operator.handlers.revisions.revision_marks import RevisionMarks
from tidemark_operator.planning.revision import ActiveRevision
from tidemark_operator.resources.manifest.meta import RELEASE

Running = Callable[[DataflowState], RunningInstance | None]


class TakeOver:
    def __init__(self, context: ReconcileContext, marks: RevisionMarks) -> None:
        self._context, self._marks = context, marks

    async def attempt(self, root: DataflowState) -> bool:
        """Whether the replacement that this Dataflow's edit began has taken over."""
        async with self._marks.lock(root.key.namespace):
            if root.pending is None or root.pending.replacement.dataflow != root.key.name:
                return False
            for other in self._context.registry.dataflows(root.key.namespace):
                note_ends(self._running(other), other)
            members, obstacle = obstacle_of(root, self._context.registry, self._running, now_ms())
            for member in members:
                member.obstacles.taking_over = {member.marks[-1].name: obstacle} if obstacle is not None else {}
            if obstacle is not None:
                return False
            await self._marks.commit(root, members)
        self._install(root, members)
        return True

    def _install(self, root: DataflowState, members: Sequence[DataflowState]) -> None:
        """Install all members at once, so that the writers of tables change without a pause. A member that has an
        obstacle is installed by its own reconcile."""
        for state, _ in exporters_first([(m, m.active) for m in members if m.active is not None]):
            if (running := self._running(state)) is not None:
                install(running, self._context.registry, state, edited=root.key.name)

    def _running(self, state: DataflowState) -> RunningInstance | None:
        return self._context.running(state.key.namespace, state.instance)


def obstacle_of(
    root: DataflowState, registry: Registry, running: Running, now_ms: int
) -> tuple[list[DataflowState], Obstacle | None]:
    """The members of the replacement that this Dataflow's edit began, and what they wait for; None: they may take
    over."""
    dataflows = registry.dataflows(root.key.namespace)
    members = closure(root, dataflows)
    names = {member.key.name for member in members}
    for other in dataflows:
        if names & {parent.name for parent in other.planning.reads if parent.kind == root.key.resource.kind}:
            return members, Obstacle(f"Dataflow {other.key.name}, which reads it, is just being planned")
    if unmarked := _unmarked(root, dataflows, names):
        return members, Obstacle(f"Dataflow {unmarked} is just being replaced with another")
    return members, judge((_member(root, m, dataflows, running(m)) for m in members), now_ms)


def _unmarked(root: DataflowState, dataflows: Sequence[DataflowState], members: Set[str]) -> str:
    """A member, or a reader of the edited Dataflow, that took over and whose status does not say so yet; empty: none.
    A new operator would not know which of its revisions is active once the next replacement took over too. A deleted
    Dataflow does not count: its active revision goes."""
    unmarked = {d.key.name for d in dataflows if d.revisions.unmarked and not d.spec.deleting}
    return min(unmarked & (members | dependants(root, dataflows)), default="") if unmarked else ""


def _member(
    root: DataflowState, state: DataflowState, dataflows: Sequence[DataflowState], running: RunningInstance | None
) -> ReplacementMember:
    assert root.pending is not None
    preparing, active, pending = state.preparing, state.active, state.pending
    kept = decide(state, dataflows) == Keep()
    if active is None or pending is None or not kept or pending.replacement != root.pending.replacement:
        failed, message = (preparing.failed, preparing.message) if preparing else (False, "")
        return ReplacementMember(
            state.key.name, False, obstacle=message if failed else "", waits="" if failed else message
        )
    mark, installing = pending.mark, state.installing(pending.mark)
    failed, message = (installing.failed, installing.message) if installing else (False, "")
    installed = running.dataflow(state.installation(mark)) if running else None
    collections = running.collections_of(installed.owner) if running and installed else []
    hydrated = sum(c.hydrated for c in collections)
    return ReplacementMember(
        state.key.name,
        True,
        obstacle=message if failed else "",
        failure=_failure(collections)
        or _incompatible(running, collections)
        or ("" if hydrated == len(collections) else quarantine(state, mark)),
        waits="" if failed else message or _may_be_finished(installed, collections),
        at_once=not state.runs or cannot_run_beside(active.revision, mark.revision),
        hydrated=hydrated,
        exports=len(collections),
        level_ms=installed.level_ms if installed else None,
    )


def quarantine(state: DataflowState, mark: ActiveRevision | None) -> str:
    """The reason why a quarantined revision is not scheduled, and what to do about it; empty for others."""
    suspicion = state.obstacles.suspicions.get(mark.name) if mark else None
    if suspicion is None or suspicion.standing is not HydrationStanding.QUARANTINED:
        return ""
    replicas = ", ".join(dict.fromkeys(death.replica for death in suspicion.deaths))
    return (
        f"it was hydrating when a replica died, or ran out of memory, {len(suspicion.deaths)} times in a row "
        f"({replicas}): edit it; or annotate it with {RELEASE} and a new value to have it tried again, on replicas "
        "with more memory where that is what it lacked"
    )


def _may_be_finished(installed: Dataflow | None, collections: Sequence[Collection]) -> str:
    """Whether a replica reports that the active revision finished a table which this one was to go on with. Once that
    is known for sure, this one is superseded (revision_ends.py). A task goes on from what the table holds."""
    read_only = installed.read_only if installed and installed.description.continual_task is None else frozenset()
    reported = (on.write for c in collections if c.id in read_only for on in c.replicas.values())
    if not any(write is not None and write.is_empty for write in reported):
        return ""
    return "waits until it is known whether the table that it would go on with was finished meanwhile"


def _failure(collections: Sequence[Collection]) -> str:
    """The error of an export that fails on every replica that has it; empty if there is none."""
    for collection in collections:
        on_replicas = sorted(
            (name, failures(on)) for name, on in collection.replicas.items() if not on.missing_features
        )
        if on_replicas and all(failed for _, failed in on_replicas):
            replica, (first, *_) = on_replicas[0]
            return f"{first} (on replica {replica})"
    return ""


def _incompatible(running: RunningInstance | None, collections: Sequence[Collection]) -> str:
    """The reason why no replica supports it; empty if one does."""
    lacks = None if running is None else too_old(running, collections, now_ms())
    return "" if lacks is None else missing_features_text(lacks)
