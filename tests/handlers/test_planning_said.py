"""What a Dataflow says while it waits to be planned, and for how long it says so."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.handlers.tombstones import deleter
from tests.handlers.worlds import READABLE, Somewhere
from tests.protocol.samples import A
from tests.resources.manifests import body
from tidemark_operator.errors import PlannerUnavailable
from tidemark_operator.handlers.reconcile_dataflow import DataflowReconciler
from tidemark_operator.kube.cache import key_of
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.resources.dataflow_conditions import Plan, Planning, WaitingForInputs
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.planning import Diagnostic, Planned, PlannedExport, PlanRequest, Refused

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


def said(*answers: Planned | Refused | PlannerUnavailable) -> list[Plan]:
    """After each answer, of a Dataflow whose instance has no replica that could say what tables there are."""

    async def scenario() -> list[Plan]:
        somewhere = Somewhere()
        somewhere.put(READABLE, None)
        somewhere.world.planner = cast(Any, Says(*answers))
        written = body("Dataflow", {**SPEC, "sql": "SELECT 1 AS a"}, "d", uid="u-d")
        key = key_of(DATAFLOWS, written)
        somewhere.cache.put(key, written)
        reconciler = DataflowReconciler(somewhere.world, cast(Any, None), deleter(somewhere), lambda key: None)
        plans: list[Plan] = []
        for number, _ in enumerate(answers):
            written["metadata"]["generation"] = number + 1
            written["spec"] = {**SPEC, "sql": f"SELECT {number} AS a"}
            await reconciler.reconcile(key, written)
            state = somewhere.world.registry.dataflow(key)
            assert state is not None
            plans.append(state.plan)
        await somewhere.fleet.close()
        return plans

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (AWAY, Planning("the planner does not answer: UNAVAILABLE")),
        (MISSING, WaitingForInputs(("Dataflow t (there is no t)",))),
    ],
    ids=["the planner was away", "an input was missing"],
)
def test_what_kept_a_dataflow_from_being_planned_is_not_said_any_more(
    answer: Refused | PlannerUnavailable, told: Plan
) -> None:
    """Once it is planned, though the plan waits for something else: that is said."""
    assert said(answer, PLANNED) == [
        told,
        Planning("waiting for a replica of ComputeInstance default to answer"),
    ]
