"""Executors that do not run are told of, in the words of whoever ended them."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_operator.orchestrator.interface import ProcessProblem
from tidemark_operator.orchestrator.kubernetes.pod_observation import observe_executors

REMEDY = "an executor ended with exit code 137; give executors more memory: spec.executors.resources"


def failed(code: int = 137, reason: str = "OOMKilled") -> dict[str, Any]:
    terminated = {"exitCode": code, "reason": reason, "startedAt": None, "finishedAt": None}
    container = {"name": "executor", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    return {"phase": "Failed", "containerStatuses": [{**container, "state": {"terminated": terminated}}]}


EVICTED = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "The node was low on resource: ephemeral-storage. Container executor was using 9Gi.",
}
NEVER_BEGAN = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}


@pytest.mark.parametrize(
    ("status", "reported"),
    [
        (failed(), ProcessProblem("OOMKilled", REMEDY)),
        (EVICTED, ProcessProblem("Evicted", EVICTED["message"])),
        (failed(137, "Error") | EVICTED, ProcessProblem("Evicted", EVICTED["message"])),
        (NEVER_BEGAN, ProcessProblem("OutOfcpu", NEVER_BEGAN["message"])),
        ({"phase": "Failed"}, ProcessProblem("Failed", "Failed")),
    ],
)
def test_a_pod_that_its_node_ended_is_told_in_the_nodes_words(status: dict[str, Any], reported: ProcessProblem) -> None:
    """Also where no container is left in it, or none ever was."""
    assert observe_executors(2, [{"metadata": {}, "status": status}]).problem == reported
