"""The way from a spec to a stored and marked revision.

    look     the Dataflow's revisions and ends, and those of the other Dataflows
    decide   Serve, Keep or Replace (replacement_decision.py)
    apply    Serve     a pending revision is given up
             Keep      nothing
             Replace   plan, place its tables, select its as_of, store it, mark it:
                         no active revision       it becomes the active one
                         the same plan            nothing is computed anew: the active one is marked with the new spec
                         another plan             it becomes the pending one
                         refused                  the active one goes on, and a pending one is given up

A revision is stored before it is marked, and marked before replicas are told. An operator that dies after storing plans
the same again and finds the stored revision; one that dies after marking finds it marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark_operator.catalogue.dataflow_state import DataflowState, PendingRevision, PlannerAnswer, ReplacementId
from tidemark_operator.catalogue.relations import parents
from tidemark_operator.catalogue.replacement_closure import as_replaced, dependants
from tidemark_operator.catalogue.row_counts import counts_of, counts_of_now
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.holds.adopted_history_hold import hold_history
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.as_of_selection import first_as_of
from tidemark_operator.handlers.revisions.current_row_counts import current_row_counts
from tidemark_operator.handlers.revisions.planner_queue import PlannerQueue
from tidemark_operator.handlers.revisions.planner_requests import (
    must_send,
    named_in,
    plan_request,
    question_of,
    remember,
)
from tidemark_operator.handlers.revisions.published_locations import published_locations
from tidemark_operator.handlers.revisions.replacement_decision import Keep, Replace, Serve, decide
from tidemark_operator.handlers.revisions.revision_ends import has_come_to_its_end
from tidemark_operator.handlers.revisions.revision_marks import RevisionMarks
from tidemark_operator.handlers.revisions.shard_placement import shard_locations, shard_lookup
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.adoption import adopted_shard
from tidemark_operator.planning.assemble import Named, describe, with_as_of
from tidemark_operator.planning.revision import (
    ActiveRevision,
    DataflowRevision,
    Parent,
    RowCount,
    WrittenShard,
    view_shards,
)
from tidemark_operator.planning.shards import (
    HasEnded,
    ShardLocations,
    given_before,
    next_term,
    unless_finished,
    view_shard,
)
from tidemark_operator.resources.conditions.dataflow import PlanRefused, WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_protocol.ids import Digest, ShardId, Time
from tidemark_protocol.messages.planning import Planned, PlannedExport, PlanRequest
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata
from tidemark_protocol.plan.sinks.publish import PublishedView


@dataclass(frozen=True)
class Draft:
    """A planned revision that is not stored yet. `shards`: where its views and tasks are written, by export."""

    description: DataflowDescription
    identity: Digest
    exports: tuple[PlannedExport, ...]
    reads: tuple[Parent, ...]
    shards: Mapping[str, ShardMetadata]
    row_counts: tuple[RowCount, ...]

    def revision(self, as_of: Time, term: int, spec: str, kept: tuple[ShardId, ...], replan: str) -> DataflowRevision:
        description, counts = with_as_of(self.description, as_of), self.row_counts
        return DataflowRevision(description, self.exports, self.reads, self.identity, term, spec, kept, counts, replan)


class RevisionPlanner:
    def __init__(
        self, context: ReconcileContext, marks: RevisionMarks, deleter: TableDeleter, queue: PlannerQueue
    ) -> None:
        self._context, self._marks, self._deleter, self._queue = context, marks, deleter, queue

    async def revise(
        self, state: DataflowState, dataflow: Dataflow, running: RunningInstance
    ) -> PlanRefused | WaitingForInputs | None:
        """Marks the revision that the spec and the other Dataflows ask for. Returns why there is none.

        Raises:
            Waiting: something that the revision needs is not known yet.
            PlannerUnavailable: the planner does not answer.
            PlannerBusy: the planner works on a plan that takes long; this one waits for its turn.
        """
        match decide(state, self._context.registry.dataflows(state.key.namespace)):
            case Serve():
                await self._give_up_pending(state, dataflow)
            case Keep():
                pass
            case Replace(joining):
                try:
                    refused = await self._replace(state, dataflow, running, joining)
                except Rejected as rejected:
                    refused = PlanRefused(rejected.reason, str(rejected))
                if refused is not None:
                    await self._give_up_pending(state, dataflow)
                if isinstance(refused, PlanRefused):
                    await self._context.events.warn(state.key, state.uid, refused.reason, refused.message)
                return refused
        return None

    async def _give_up_pending(self, state: DataflowState, dataflow: Dataflow) -> None:
        if state.active is not None and state.pending is not None:
            await self._marks.serve(state, dataflow.meta, state.active)

    async def _replace(
        self, state: DataflowState, dataflow: Dataflow, running: RunningInstance, joining: ReplacementId | None
    ) -> PlanRefused | WaitingForInputs | None:
        """Plans a revision, stores it and marks it. `joining`: the replacement that it will be part of."""
        storage = running.config.storage_location
        published = published_locations(self._context, state, dataflow, storage)  # first: it may wait for long
        stored, active = await self._marks.stored(dataflow.meta), state.active
        view = as_replaced(self._context.registry.dataflows(state.key.namespace), joining)
        sources = self._context.registry.sources(state.key.namespace)
        rows = current_row_counts(self._context, state.key.namespace, named_in(dataflow).lower())
        followed_by_plan = followed(stored, active, state.spec.digest, dataflow.replan)
        if active is not None:
            rows = counts_of_now(active.revision, rows)
        request = plan_request(dataflow, sources, view, followed_by_plan, rows)
        answer = await self._ask(state, dataflow, request)
        outcome = answer.outcome
        if not isinstance(outcome, Planned):
            return outcome
        check_published(dataflow, outcome)
        reads = parents(sources, view, outcome.references)
        self._check_cycle(state, reads)
        given = {
            e.name: _shards_given(state, e, stored.values() if active is not None else ()) for e in outcome.exports
        }
        named = named_as(state, dataflow, published)
        shards = await self._view_shards(state, dataflow, named, outcome, running, given)
        draft = Draft(*describe(named, outcome, shards), outcome.exports, reads, shards, answer.counts)
        if active is not None and is_served(state, draft.identity):
            mark = replace(active, spec_digest=state.spec.digest, generation=dataflow.meta.generation)
            await self._marks.serve(state, dataflow.meta, replace(mark, replan=dataflow.replan or active.replan))
            if dataflow.replan not in ("", active.replan):
                text = (
                    f"planned anew ({dataflow.replan:.64}), it has the plan of {active.name}: nothing is computed again"
                )
                await self._context.events.note(state.key, state.uid, "PlanUnchanged", text)
            return None
        if active is not None:
            shards = await self._unless_finished(state, outcome, draft.description, shards, running, given)
            draft = Draft(*describe(named, outcome, shards), outcome.exports, reads, shards, answer.counts)
            superseded = state.ends.superseded
            if any(m.name in superseded and m.revision.identity == draft.identity for m in state.marks):
                raise Waiting("Replacing", "waits until a replica confirms that its table is finished")
        await self._store(state, dataflow, running, joining, draft)
        return None

    async def _store(
        self,
        state: DataflowState,
        dataflow: Dataflow,
        running: RunningInstance,
        joining: ReplacementId | None,
        draft: Draft,
    ) -> None:
        """Stores the revision and marks it: as the active one if there is none, else as the pending one."""
        active, wanted = state.active, state.spec.digest
        as_of = first_as_of(running, self._context.registry, state, draft.description)
        # again, with no await before `reads` and `places` are set: of two edits that form a cycle, or want one place,
        # one is refused
        self._check_cycle(state, draft.reads)
        published = published_locations(self._context, state, dataflow, running.config.storage_location).values()
        state.planning.reads, state.planning.places = draft.reads, frozenset(view.location for view in published)
        try:
            for view in published:
                await self._deleter.finish(state.key.namespace, view.location, everywhere=view.chosen)
            await self._marks.protect(state.key.namespace, draft.reads)
            stored = await self._marks.stored(dataflow.meta)
            term = self._next_term(running, state, draft.description, stored)
            kept = self._finished(running, draft.shards) if active is None else ()
            revision = draft.revision(as_of, term, wanted, kept, dataflow.replan)
            mark = replace(await self._marks.store(state, dataflow.meta, stored, revision), spec_digest=wanted)
            mark = replace(mark, replan=dataflow.replan or ("" if active is None else active.replan))
            if active is None:
                await self._marks.serve(state, dataflow.meta, mark, alone=not stored)
            else:
                together = joining or ReplacementId(state.key.name, mark.name)
                await self._marks.pend(state, dataflow.meta, PendingRevision(mark, together))
        finally:
            state.planning.reads, state.planning.places = (), frozenset()

    def _next_term(
        self,
        running: RunningInstance,
        state: DataflowState,
        description: DataflowDescription,
        stored: dict[int, DataflowRevision],
    ) -> int:
        """A writer term above that of every revision that may have written one of the tables."""
        book = running.shards
        of_tables = [shard.term for s in view_shards(description) if (shard := book.get(s.shard_id))]
        of_marks = [mark.revision.writer_term for mark in state.marks]
        return next_term(*of_tables, *of_marks, *(revision.writer_term for revision in stored.values()))

    def _finished(self, running: RunningInstance, shards: Mapping[str, ShardMetadata]) -> tuple[ShardId, ...]:
        """Adopted tables that are finished: the revision keeps them as they are."""
        ids = (shard.shard_id for shard in shards.values())
        return tuple(id for id in ids if (f := running.shards.frontiers(id)) and f.upper.is_empty)

    def _check_cycle(self, state: DataflowState, reads: Sequence[Parent]) -> None:
        check_cycle(state, self._context.registry.dataflows(state.key.namespace), reads)

    async def _ask(self, state: DataflowState, dataflow: Dataflow, request: PlanRequest) -> PlannerAnswer:
        """The planner's answer. A request that was answered is not sent again, unless the planner itself failed."""
        question = question_of(request, dataflow.replan)
        answer = state.planning.answer
        if answer is None or must_send(answer, question, now_ms()):
            async with self._queue.turn(state.key):
                response = await self._context.planner.plan(request)
            answer = remember(dataflow, response, question, answer, now_ms())
            if isinstance(response, Planned):
                answer = replace(answer, counts=counts_of(request.catalogue, response.references))
            state.planning.answer = answer
        return answer

    async def _view_shards(
        self,
        state: DataflowState,
        dataflow: Dataflow,
        named: Named,
        planned: Planned,
        running: RunningInstance,
        given: Mapping[str, Sequence[WrittenShard]],
    ) -> dict[str, ShardMetadata]:
        """Where each view and task is written. Tables that are adopted are held from here on."""
        adopts, look_up = state.active is None and dataflow.adopt, shard_lookup(running)
        locations = await self._locations(state, running, adopts)
        first, _ = describe(
            named, planned, {e.name: locations.exported(e, 1) for e in planned.exports if e.kind != "index"}
        )
        shards: dict[str, ShardMetadata] = {}
        adopted: list[tuple[ShardId, str]] = []
        for export in planned.exports:
            if export.kind != "index" and adopts:
                shard, found = await adopted_shard(locations, export, look_up, self._has_ended(running, state, first))
                shards[export.name] = shard
                if found is not None:
                    running.shards.adopt(shard.shard_id, shard.location, found, state.spec.lag_ms)
                    adopted.append((shard.shard_id, shard.location))
                    hold_history(self._context, state.key, state.uid, adopted)
            elif export.kind != "index":
                before = state.active.revision.written(export.name) if state.active else None
                shards[export.name] = await view_shard(locations, export, before, look_up, given[export.name])
        return shards

    async def _unless_finished(
        self,
        state: DataflowState,
        planned: Planned,
        description: DataflowDescription,
        shards: dict[str, ShardMetadata],
        running: RunningInstance,
        given: Mapping[str, Sequence[WrittenShard]],
    ) -> dict[str, ShardMetadata]:
        """The same, with the next version of each table that is finished."""
        locations, look_up = await self._locations(state, running), shard_lookup(running)
        written = [export for export in planned.exports if export.name in shards]
        ended = self._has_ended(running, state, description)
        return {
            e.name: await unless_finished(locations, e, shards[e.name], look_up, ended, given[e.name]) for e in written
        }

    def _has_ended(self, running: RunningInstance, state: DataflowState, description: DataflowDescription) -> HasEnded:
        """A function that tells whether a table, which is finished, ended with the revision."""
        return lambda: has_come_to_its_end(running, self._context.registry, state, description)

    async def _locations(self, state: DataflowState, running: RunningInstance, adopts: bool = False) -> ShardLocations:
        location = running.config.storage_location
        return await shard_locations(self._context.registry, self._deleter, state, location, adopts)


def followed(
    stored: Mapping[int, DataflowRevision], active: ActiveRevision | None, spec_digest: str, replan: str
) -> list[DataflowRevision]:
    """The revisions that a plan of this spec follows. An operator may have died before it marked the newest one: it is
    found again if the plan is the same. One of another spec is an edit that was given up. `replan`: the annotation;
    a plan that it asks for does not follow the active revision, unless that value was planned before."""
    newest = [stored[max(stored)]] if stored and stored[max(stored)].spec_digest == spec_digest else []
    follows_active = active is not None and replan in ("", active.replan)
    return [*newest, active.revision] if active is not None and follows_active else newest


def _shards_given(
    state: DataflowState, export: PlannedExport, stored: Iterable[DataflowRevision]
) -> Sequence[WrittenShard]:
    """The shards that earlier revisions of the Dataflow gave this export."""
    pending = state.pending.mark.revision if state.pending else None
    return given_before(export, pending, stored, state.spec.digest)


def is_served(state: DataflowState, identity: Digest) -> bool:
    """Whether the active revision has the plan, written to the same destinations, and goes on with its tables."""
    active = state.active
    return active is not None and active.revision.identity == identity and active.name not in state.ends.superseded


def named_as(state: DataflowState, dataflow: Dataflow, published: Mapping[str, PublishedView]) -> Named:
    """The Dataflow as its manifest says, with the tables that its views are published as."""
    policy, refresh = dataflow.refresh_policy.value, dataflow.refresh
    return Named(state.key.name, state.uid, dataflow.until, refresh, published, dataflow.sinks, policy)


def check_cycle(state: DataflowState, dataflows: Sequence[DataflowState], reads: Sequence[Parent]) -> None:
    """Raises Rejected where a Dataflow that it would read reads it."""
    read = [parent for parent in reads if parent.kind == DATAFLOWS.kind]
    users = dependants(state, dataflows) if read else ()
    for parent in read:
        if parent.name in users:
            raise Rejected("Cycle", f"{parent} reads this Dataflow, so this Dataflow cannot read it")


def check_published(dataflow: Dataflow, planned: Planned) -> None:
    """Raises Rejected where a view cannot be published as the manifest says."""
    for export in planned.exports:
        publish = dataflow.publishes.get(export.name)
        if publish is not None and (refusal := publish.refusal(export.columns)):
            raise Rejected("PartitionsNotPossible", f"materialized view {export.name}: {refusal}")
