"""Decisions about a Dataflow and conditions from its obstacles, as pure functions."""

from __future__ import annotations

import pytest

from tests.handlers.revised_dataflows import ask, dataflow, rev
from tests.resources.manifests import dataflow as manifest
from tidemark_operator.catalogue.dataflow_state import DataflowState, Obstacle
from tidemark_operator.handlers.reconcile.dataflow import AwaitInstance, Delete, Run, decide
from tidemark_operator.resources.conditions.dataflow import Plan, Planning, PlanRefused, Stored, WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow

REFUSED, WAITS = PlanRefused("Type", "no such function"), WaitingForInputs(("Dataflow t",))
FAILS = Obstacle("spec.until is 400", failed=True, reason="UntilNotReadable")


@pytest.mark.parametrize(
    ("deleting", "policy", "has_readers", "has_instance", "decision"),
    [
        (False, "Retain", False, True, Run(finalizer=False)),
        (False, "Delete", False, True, Run(finalizer=True)),
        (False, "Retain", True, True, Run(finalizer=True)),
        (False, "Delete", False, False, AwaitInstance(finalizer=True)),
        (True, "Delete", True, True, Run(finalizer=True)),
        (True, "Retain", True, False, AwaitInstance(finalizer=True)),
        (True, "Retain", False, True, Delete()),
        (True, "Delete", False, False, Delete()),
    ],
)
def test_the_decision_about_a_dataflow(
    deleting: bool, policy: str, has_readers: bool, has_instance: bool, decision: Delete | AwaitInstance | Run
) -> None:
    """A deleted one runs until its last reader is gone, and goes also where its instance is gone."""
    metadata = {"deletionTimestamp": "2026-11-26T00:00:00Z"} if deleting else {}
    spec = {"sql": "SELECT 1 AS a", "index": {"key": ["a"]}, "deletionPolicy": policy}
    parsed = Dataflow.parse(manifest(spec, **metadata))

    assert decide(parsed, has_readers=has_readers, has_instance=has_instance) == decision


def new(planning: Planning | WaitingForInputs | PlanRefused | None) -> DataflowState:
    state = dataflow("d", None)
    state.obstacles.planning = planning
    return state


def edited(planning: Planning | WaitingForInputs | PlanRefused | None, *, pending: bool = False) -> DataflowState:
    state = dataflow("d", rev("d", 1), rev("d", 2) if pending else None, spec="spec 2")
    state.obstacles.planning = planning
    return state


def failing(state: DataflowState) -> DataflowState:
    """The active revision cannot be installed."""
    state.obstacles.installing["d-r1"] = FAILS
    return state


@pytest.mark.parametrize(
    ("state", "plan"),
    [
        (new(None), Planning()),
        (new(WAITS), WAITS),
        (dataflow("d", rev("d", 1)), Stored("d-r1")),
        (failing(dataflow("d", rev("d", 1))), PlanRefused(FAILS.reason, FAILS.message)),
        (edited(None), Stored("d-r1")),
        (edited(REFUSED), REFUSED),
        (edited(None, pending=True), Stored("d-r2")),
        (failing(edited(None, pending=True)), Stored("d-r2")),
        (ask(edited(REFUSED), digest="spec 1"), Stored("d-r1")),
    ],
    ids=[
        "new",
        "an input is missing",
        "planned",
        "planned and not to be installed",
        "edited",
        "edited and refused",
        "its edit is planned",
        "its edit is planned and it cannot be installed itself",
        "its edit was refused and taken back",
    ],
)
def test_the_condition_planned(state: DataflowState, plan: Plan) -> None:
    assert state.plan == plan


@pytest.mark.parametrize(
    ("planning", "obstacle"),
    [
        (REFUSED, Obstacle("no such function", failed=True)),
        (WAITS, Obstacle("waits for Dataflow t")),
        (Planning("the planner does not answer"), Obstacle("the planner does not answer")),
        (None, FAILS),
    ],
)
def test_obstacles_of_a_pending_revision(
    planning: Planning | WaitingForInputs | PlanRefused | None, obstacle: Obstacle
) -> None:
    """Planning comes first. A missing input of an edit may come yet; that of an unedited Dataflow is an obstacle."""
    state = edited(planning, pending=True)
    state.obstacles.installing["d-r2"] = FAILS
    assert state.preparing == obstacle

    unedited = ask(state, digest="spec 1")
    assert unedited.preparing == (Obstacle(obstacle.message, failed=True) if planning == WAITS else obstacle)
