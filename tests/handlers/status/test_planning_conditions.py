"""Conditions of a Dataflow that waits to be planned."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.controller.harness import at
from tests.handlers.deletion.tombstones import deleter
from tests.handlers.harness import READABLE, OperatorHarness
from tests.protocol.samples import SHARD, A, dataflow
from tests.resources.manifests import body
from tidemark_operator.catalogue.dataflow_state import DataflowState, PendingRevision, ReplacementId, RevisionSet
from tidemark_operator.errors import PlannerUnavailable
from tidemark_operator.handlers.reconcile.dataflow import DataflowReconciler
from tidemark_operator.kube.cache import key_of
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision, view_shards
from tidemark_operator.resources.conditions.dataflow import Plan, Planning, PlanRefused, Stored, WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_protocol.ids import Digest, GlobalId, Time
from tidemark_protocol.messages.planning import Diagnostic, Planned, PlannedExport, PlanRequest, Refused

ENDS = (("d", Time(400)), ("e", None))
VIEW = PlannedExport("v", "materializedView", GlobalId("o"), (A,), ())
PLANNED = Planned((), (), (VIEW,), (), "")
MISSING = Refused((Diagnostic("UNRESOLVED_RELATION", "there is no t", relation=("t",)),))
AWAY = PlannerUnavailable("the planner does not answer: UNAVAILABLE")
SPEC = {"instance": "default", "materializedView": {}}


class Says:
    """A planner that gives these answers, one after the other."""

    def __init__(self, *answers: Planned | Refused | PlannerUnavailable) -> None:
        self._answers = list(answers)

    async def plan(self, request: PlanRequest) -> Planned | Refused:
        answer = self._answers.pop(0)
        if isinstance(answer, PlannerUnavailable):
            raise answer
        return answer


class Quiet:
    """No Event is of interest."""

    async def warn(self, *_: object) -> None: ...


def planned_after(*answers: Planned | Refused | PlannerUnavailable) -> list[Plan]:
    """After each answer, of a Dataflow whose instance has no replica that could say what tables there are."""

    async def scenario() -> list[Plan]:
        harness = OperatorHarness()
        harness.put(READABLE, None)
        harness.context.planner = cast(Any, Says(*answers))
        written = body("Dataflow", {**SPEC, "sql": "SELECT 1 AS a"}, "d", uid="u-d")
        key = key_of(DATAFLOWS, written)
        harness.cache.put(key, written)
        reconciler = DataflowReconciler(harness.context, cast(Any, None), deleter(harness), lambda key: None)
        plans: list[Plan] = []
        for number, _ in enumerate(answers):
            written["metadata"]["generation"] = number + 1
            written["spec"] = {**SPEC, "sql": f"SELECT {number} AS a"}
            await reconciler.reconcile(key, written)
            state = harness.context.registry.dataflow(key)
            assert state is not None
            plans.append(state.plan)
        await harness.fleet.close()
        return plans

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (AWAY, Planning("the planner does not answer: UNAVAILABLE")),
        (MISSING, WaitingForInputs(("Dataflow t (there is no t)",))),
    ],
    ids=["the planner was away", "an input was missing"],
)
def test_a_past_planning_obstacle_is_not_shown(answer: Refused | PlannerUnavailable, reported: Plan) -> None:
    """Once it is planned, though the plan waits for something else: that is said."""
    assert planned_after(answer, PLANNED) == [
        reported,
        Planning("waiting for a replica of ComputeInstance default to answer"),
    ]


@pytest.mark.parametrize("edited", [False, True])
def test_an_edit_is_planned_though_the_active_revision_cannot_begin(edited: bool) -> None:
    """The edit is what the status speaks of, for as long as it hydrates."""

    async def scenario() -> Plan:
        harness = OperatorHarness()
        harness.put(READABLE, None)
        harness.context.events = cast(Any, Quiet())
        spec = {**SPEC, "sql": "SELECT 1 AS a"}
        written = body("Dataflow", spec, "d", uid="d", creationTimestamp="2026-01-01T00:00:00Z")
        key = key_of(DATAFLOWS, written)
        harness.cache.put(key, written)
        digest = spec_digest(Dataflow.parse(written))
        ended, other = (replace(dataflow(name, 300), index_exports=(), until=until) for name, until in ENDS)
        serves = ActiveRevision("d-r1", 1, 1, "before", DataflowRevision(ended, (), (), Digest("1"), 1, "before"))
        coming = ActiveRevision("d-r2", 2, 2, digest, DataflowRevision(other, (), (), Digest("2"), 2, digest))
        state = DataflowState(
            key, "d", "default", revisions=RevisionSet(serves if edited else replace(serves, spec_digest=digest))
        )
        if edited:
            state.revisions = replace(state.revisions, pending=PendingRevision(coming, ReplacementId("d", "d-r2")))
        harness.context.registry.put_dataflow(state)
        book = harness.fleet.book("ns")
        for shard in (SHARD, *view_shards(ended)):
            book.register(shard.shard_id, shard.location)
            book.observe(shard.shard_id, at(900), at(800))
        reconciler = DataflowReconciler(harness.context, cast(Any, None), deleter(harness), lambda key: None)
        await reconciler.reconcile(key, written)
        await harness.fleet.close()
        return state.plan

    plan = asyncio.run(scenario())
    assert plan == Stored("d-r2") if edited else isinstance(plan, PlanRefused)
