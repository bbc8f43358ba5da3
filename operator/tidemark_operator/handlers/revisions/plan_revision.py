"""From a spec to a revision: ask the planner, put shards, as_of and term to the plan, store it, mark it.

    spec as planned          ► serve      a pending revision is given up
    first plan               ► serve
    same plan (white space)  ► serve      nothing is computed anew
    another plan             ► pend       beside the active one; with it, all that import what it takes away
    refused                  ► what is active goes on; the state says why

Storing comes before marking, marking before sending. An operator that dies after storing plans the same again and
finds the stored revision; one that dies after marking finds it marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidemark_operator.catalogue.registry import DataflowState, PendingRevision, Together
from tidemark_operator.catalogue.relations import parents
from tidemark_operator.catalogue.replacement_closure import as_replaced, dependants
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion import Deleter
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.handlers.revisions.adopted_history_hold import keep_history
from tidemark_operator.handlers.revisions.installer import choose_as_of, has_ended
from tidemark_operator.handlers.revisions.planner_queue import PlannersTurn
from tidemark_operator.handlers.revisions.planner_requests import must_ask, plan_request, remember
from tidemark_operator.handlers.revisions.replacement_decision import Keep, Replace, Serve, decide
from tidemark_operator.handlers.revisions.revision_marks import Marks
from tidemark_operator.handlers.revisions.shard_placement import looking, place_of
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.adoption import adopted_shard
from tidemark_operator.planning.assemble import Named, at, describe
from tidemark_operator.planning.revision import DataflowRevision, Parent, Written, view_shards
from tidemark_operator.planning.shards import HasEnded, Place, given_before, next_term, unless_finished, view_shard
from tidemark_operator.resources.conditions.dataflow import PlanRefused, Stored, WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_protocol.ids import Digest, ShardId
from tidemark_protocol.messages.planning import Planned, PlannedExport
from tidemark_protocol.plan.codec import digest
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata


class Reviser:
    def __init__(self, world: World, marks: Marks, deleter: Deleter, turn: PlannersTurn) -> None:
        self._world, self._marks, self._deleter, self._turn = world, marks, deleter, turn

    async def revise(self, state: DataflowState, dataflow: Dataflow, running: RunningInstance) -> None:
        """Sees to it that the revision which the spec and the other Dataflows ask for is marked. Raises Waiting,
        Rejected, PlannerUnavailable, GaveWay."""
        others = self._world.registry.dataflows(state.key.namespace)
        if state.active is not None and not state.edited:
            state.plan = Stored(state.active.name)
        match decide(state, state.spec_digest, others):
            case Serve():
                assert state.active is not None
                state.obstacle = state.pending_waiting = ""
                if state.pending is not None:
                    await self._marks.serve(state, dataflow.meta, state.active)
            case Keep():
                state.plan = Stored((state.marks[-1] if state.edited else state.marks[0]).name)
            case Replace(joining):
                try:
                    await self._replace(state, dataflow, running, joining)
                except Rejected as rejected:
                    await self._refuse(state, dataflow, PlanRefused(rejected.reason, str(rejected)))
                    raise

    async def learn(self, state: DataflowState, running: RunningInstance) -> None:
        """A continual task begins exactly where its table ends: a replica says where that is, if none has."""
        book = running.shards
        for description in (mark.revision.description for mark in state.marks):
            if description.continual_task is None:
                continue
            shards = [book.register(s.shard_id, s.location, state.lag_ms) for s in view_shards(description)]
            if unknown := [(shard.id, shard.location) for shard in shards if shard.frontiers is None]:
                replica, found = await running.describe(unknown)
                running.record_shards(replica, found.shards)

    async def _replace(
        self, state: DataflowState, dataflow: Dataflow, running: RunningInstance, joining: Together | None
    ) -> None:
        wanted, active = state.spec_digest, state.active
        view = as_replaced(self._world.registry.dataflows(state.key.namespace), joining)
        outcome = await self._ask(state, dataflow, view)
        if not isinstance(outcome, Planned):
            await self._refuse(state, dataflow, outcome)
            return
        reads = parents(self._world.registry.sources(state.key.namespace), view, outcome.references)
        self._check_cycle(state, reads)
        stored = await self._marks.stored(dataflow.meta) if active is not None else {}
        given = {e.name: _given(state, e, stored.values()) for e in outcome.exports}
        named = Named(state.key.name, state.uid, dataflow.until, dataflow.refresh)
        shards = await self._view_shards(state, dataflow, named, outcome, running, given)
        description, identity = describe(named, outcome, shards)
        if active is not None and active.revision.identity == identity and active.name not in state.outrun:
            mark = replace(active, spec_digest=wanted, generation=dataflow.meta.generation)
            await self._marks.serve(state, dataflow.meta, mark)
            return
        if active is not None:
            shards = await self._unless_finished(state, outcome, description, shards, running, given)
            description, identity = describe(named, outcome, shards)
            if any(mark.name in state.outrun and mark.revision.identity == identity for mark in state.marks):
                raise Waiting("Replacing", "waits until the replica that is asked says that its table is finished")
        as_of = choose_as_of(running, self._world.registry, state, description, first=True)
        self._check_cycle(state, reads)  # again, and at once: of two that are edited to read each other, one sees it
        state.claims = reads
        try:
            await self._marks.protect(state.key.namespace, reads)
            stored = await self._marks.stored(dataflow.meta)
            term = self._next_term(running, state, description, stored)
            kept = self._kept(running, shards) if active is None else ()
            revision = DataflowRevision(at(description, as_of), outcome.exports, reads, identity, term, wanted, kept)
            mark = await self._marks.store(state, dataflow.meta, stored, revision)
            mark = replace(mark, spec_digest=wanted)
            if active is None:
                await self._marks.serve(state, dataflow.meta, mark, alone=not stored)
                return
            together = joining or Together(state.key.name, mark.name)
            await self._marks.pend(state, dataflow.meta, PendingRevision(mark, together))
            state.obstacle = ""
        finally:
            state.claims = ()

    def _next_term(
        self,
        running: RunningInstance,
        state: DataflowState,
        description: DataflowDescription,
        stored: dict[int, DataflowRevision],
    ) -> int:
        """Above that of every revision that may ever have written."""
        book = running.shards
        seen = [shard.term for s in view_shards(description) if (shard := book.get(s.shard_id))]
        known = [mark.revision.writer_term for mark in state.marks]
        return next_term(*seen, *known, *(revision.writer_term for revision in stored.values()))

    def _kept(self, running: RunningInstance, shards: Mapping[str, ShardMetadata]) -> tuple[ShardId, ...]:
        """Of adopted tables those that are finished: what has come to its end has nothing to write there."""
        ids = (shard.shard_id for shard in shards.values())
        return tuple(id for id in ids if (f := running.shards.frontiers(id)) and f.upper.is_empty)

    def _check_cycle(self, state: DataflowState, reads: Sequence[Parent]) -> None:
        read = [parent for parent in reads if parent.kind == DATAFLOWS.kind]
        users = dependants(state, self._world.registry.dataflows(state.key.namespace)) if read else ()
        for parent in read:
            if parent.name in users:
                raise Rejected("Cycle", f"{parent} reads this Dataflow, so this Dataflow cannot read it")

    async def _ask(
        self, state: DataflowState, dataflow: Dataflow, view: Sequence[DataflowState]
    ) -> Planned | PlanRefused | WaitingForInputs:
        """The planner's answer. The same question, of the same catalogue, is asked once, unless it was the planner
        that failed."""
        request = plan_request(dataflow, self._world.registry.sources(state.key.namespace), view)
        question: Digest = digest(request)
        if must_ask(state.answer, question, now_ms()):
            async with self._turn.taken(state.key):
                said = await self._world.planner.plan(request)
            state.answer = remember(dataflow, said, question, state.answer, now_ms())
        assert state.answer is not None
        return state.answer.outcome

    async def _refuse(self, state: DataflowState, dataflow: Dataflow, refused: PlanRefused | WaitingForInputs) -> None:
        """What serves goes on. Of an edit, it is the Dataflow's own affair, and what is missing may come; else it is an
        obstacle to the replacement that it should be part of."""
        message = refused.message if isinstance(refused, PlanRefused) else f"waits for {', '.join(refused.inputs)}"
        if state.active is not None and state.pending is not None:
            await self._marks.serve(state, dataflow.meta, state.active)
        if state.active is None or state.edited:
            state.plan = refused
        in_vain = isinstance(refused, PlanRefused) or not state.edited
        state.obstacle, state.pending_waiting = (message, "") if in_vain else ("", message)
        if isinstance(refused, PlanRefused):
            await self._world.events.warn(state.key, state.uid, refused.reason, refused.message)

    async def _view_shards(
        self,
        state: DataflowState,
        dataflow: Dataflow,
        named: Named,
        planned: Planned,
        running: RunningInstance,
        given: Mapping[str, Sequence[Written]],
    ) -> dict[str, ShardMetadata]:
        adopts, look = state.active is None and dataflow.adopt, looking(running)
        place = await self._place(state, running, adopts)
        first, _ = describe(
            named, planned, {e.name: place.exported(e, 1) for e in planned.exports if e.kind != "index"}
        )
        shards: dict[str, ShardMetadata] = {}
        adopted: list[tuple[ShardId, str]] = []
        for export in planned.exports:
            if export.kind != "index" and adopts:
                shard, found = await adopted_shard(place, export, look, self._has_ended(running, state, first))
                shards[export.name] = shard
                if found is not None:
                    running.shards.adopt(shard.shard_id, shard.location, found, state.lag_ms, now_ms())
                    adopted.append((shard.shard_id, shard.location))
                    keep_history(self._world, state.key, state.uid, adopted)
            elif export.kind != "index":
                before = state.active.revision.written(export.name) if state.active else None
                shards[export.name] = await view_shard(place, export, before, look, given[export.name])
        return shards

    async def _unless_finished(
        self,
        state: DataflowState,
        planned: Planned,
        description: DataflowDescription,
        shards: dict[str, ShardMetadata],
        running: RunningInstance,
        given: Mapping[str, Sequence[Written]],
    ) -> dict[str, ShardMetadata]:
        place, look = await self._place(state, running), looking(running)
        written = [export for export in planned.exports if export.name in shards]
        ended = self._has_ended(running, state, description)
        return {e.name: await unless_finished(place, e, shards[e.name], look, ended, given[e.name]) for e in written}

    def _has_ended(self, running: RunningInstance, state: DataflowState, description: DataflowDescription) -> HasEnded:
        """It is asked where a table is finished."""
        return lambda: has_ended(running, self._world.registry, state, description)

    async def _place(self, state: DataflowState, running: RunningInstance, adopts: bool = False) -> Place:
        return await place_of(self._world.registry, self._deleter, state, running.config.storage_location, adopts)


def _given(state: DataflowState, export: PlannedExport, stored: Iterable[DataflowRevision]) -> Sequence[Written]:
    pending = state.pending.mark.revision if state.pending else None
    return given_before(export, pending, stored, state.spec_digest)
