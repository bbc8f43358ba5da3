"""Conditions carry the generation of the spec that they are about, also where the object is newer already."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from tests.handlers.revised_dataflows import dataflow, rev
from tests.handlers.status.test_quarantine_conditions import SPEC, Reading, play
from tests.resources.manifests import body
from tidemark_operator.handlers.reconcile.dataflow import DataflowReconciler
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.kube.cache import key_of
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.resources.conditions.dataflow import Planning, PlanRefused


def test_conditions_until_an_edit_is_reconciled_are_of_the_generation_before() -> None:
    def scenario(reading: Reading) -> None:
        state = dataflow("b", rev("b", 1, imports=["a/i/1"], tables=()))
        state.spec = replace(state.spec, generation=1)
        reading.context.registry.put_dataflow(state)
        edited = body("Dataflow", SPEC, "b", uid="b")
        edited["metadata"]["generation"] = 2
        status = status_of(reading.context, key_of(DATAFLOWS, edited), edited, 0)
        assert status is not None
        assert {status["observedGeneration"], *(c["observedGeneration"] for c in status["conditions"])} == {1}

    play(scenario)


def test_the_refusal_of_the_spec_before_is_not_of_an_edit() -> None:
    """The planner has not seen the edit yet."""

    def scenario(reading: Reading) -> None:
        state = dataflow("b", rev("b", 1, imports=["a/i/1"], tables=()))
        written = body("Dataflow", SPEC, "b", uid="b")
        reconciler = cast(DataflowReconciler, SimpleNamespace(_context=reading.context))
        DataflowReconciler.read_spec(reconciler, state, written)
        refused = state.obstacles.planning = PlanRefused("UnresolvedColumn", "nope")
        DataflowReconciler.read_spec(reconciler, state, written)
        assert state.obstacles.planning is refused
        DataflowReconciler.read_spec(reconciler, state, body("Dataflow", {**SPEC, "sql": "SELECT x FROM a"}, "b"))
        assert state.obstacles.planning == Planning()

    play(scenario)


def test_an_object_that_is_created_anew_has_no_status_of_its_predecessor() -> None:
    """The object has no status until it is reconciled."""

    def scenario(reading: Reading) -> None:
        state = dataflow("b", rev("b", 1, imports=["a/i/1"], tables=()))
        reading.context.registry.put_dataflow(state)
        again = body("Dataflow", SPEC, "b", uid="another")
        assert status_of(reading.context, key_of(DATAFLOWS, again), again, 0) is None

    play(scenario)
