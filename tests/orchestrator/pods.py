"""Replicas for tests, and pods as a kubelet would report them."""

from __future__ import annotations

from typing import Any

from tidemark_operator.orchestrator.interface import Owner, PodSpec, ReplicaSpec
from tidemark_operator.orchestrator.kubernetes.names import ReplicaShape, member
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings
from tidemark_operator.resources.manifest.pods import Executors, Requests, ScratchVolume, Volume

SETTINGS = KubernetesSettings("registry.example/tidemark/replica:1")
SMALL = ReplicaSpec("uid-r1", "ns", "r1", 2, 2 << 30, Owner("default", "uid-default"))
LARGE = ReplicaSpec(
    "uid-r2",
    "ns",
    "r2",
    4,
    8 << 30,
    Owner("default", "uid-default"),
    PodSpec(
        requests=Requests("500m", "4Gi"),
        executors=Executors(2, 4, 6 << 30, Requests("1")),
        scratch=ScratchVolume(40 << 30, "scratch"),
        volumes=(Volume("shards", "/data"), Volume("landing", "/landing", read_only=True)),
        credentials="bucket",
    ),
)


def small() -> ReplicaShape:
    return member(SMALL, SETTINGS)


def large() -> ReplicaShape:
    return member(LARGE, SETTINGS)


def pod(container: dict[str, Any] | None = None, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    """With one container, in this state."""
    statuses = [] if container is None else [container]
    return {
        "metadata": {"uid": "p1", "creationTimestamp": "2026-01-01T00:00:00Z", **metadata},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


def container(state: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0) -> dict[str, Any]:
    return {"state": state, "lastState": last or {}, "restartCount": restarts}


def running(restarts: int = 0, last: dict[str, Any] | None = None) -> dict[str, Any]:
    return {**container({"running": {"startedAt": "2026-01-01T00:00:10Z"}}, last, restarts), "ready": True}


def terminated_state(code: int, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:01:00Z"}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}
