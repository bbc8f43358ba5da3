"""Blame for deaths of replicas, as the Dataflow's status stores it (`status.suspects`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.controller.hydration.quarantine import Death, Suspicion, unless_released


def load_suspicions(state: DataflowState, status: Mapping[str, Any]) -> None:
    """Takes the blame that an earlier operator stored into the state."""
    state.obstacles.suspicions = stored_suspicions(status)


def stored_suspicions(status: Mapping[str, Any]) -> dict[str, Suspicion]:
    """The blame that a status has, by the revision's name."""
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


def release_suspicions(state: DataflowState) -> None:
    """Drops blame that the annotation of the object takes back, and blame of revisions that are gone."""
    known, release = state.obstacles.suspicions, state.spec.release
    left = {mark.name: unless_released(known.get(mark.name), release) for mark in state.marks}
    state.obstacles.suspicions = {name: suspicion for name, suspicion in left.items() if suspicion is not None}
