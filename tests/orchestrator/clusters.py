"""A namespace of a real API server for replicas, the operator's objects in it, and a kubelet's reports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.crds.manifests import bent
from tests.orchestrator.pods import SETTINGS
from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.kube.client import Kube
from tidemark_operator.orchestrator.interface import Observation, Owner, ReplicaSpec
from tidemark_operator.orchestrator.kubernetes.orchestrator import KubernetesOrchestrator

MADE = "statefulsets,services,configmaps,secrets,poddisruptionbudgets,pods"
OURS = "app.kubernetes.io/managed-by=tidemark-operator"


@dataclass
class Cluster:
    """One namespace, with PodSecurity restricted enforced."""

    plane: ControlPlane
    namespace: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.plane.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def create(self, kind: str, changes: dict[str, Any], name: str) -> str:
        """Its uid."""
        made = self.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(bent(kind, changes, name)))
        return str(json.loads(made)["metadata"]["uid"])

    def replica(self, spec: ReplicaSpec, **changes: Any) -> ReplicaSpec:
        """With resources that own it."""
        instance = self.create("ComputeInstance", {}, f"i-{spec.name}")
        uid = self.create("ComputeReplica", {"instance": f"i-{spec.name}"}, spec.name)
        owner = Owner(f"i-{spec.name}", instance)
        return replace(spec, key=uid, namespace=self.namespace, instance=owner, **changes)

    def made(self) -> list[str]:
        """Names of all that is ours."""
        return sorted(self.kubectl("get", MADE, "-l", OURS, "-o", "name").split())

    def report(self, pod: str, status: dict[str, Any]) -> None:
        """Report the pod's status, as the kubelet does."""
        self.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))

    def run(self, scenario: Callable[[Kube], Awaitable[None]]) -> None:
        async def with_client() -> None:
            async with Kube.connect(self.plane.kubeconfig, (self.namespace,)) as kube:
                await asyncio.wait_for(scenario(kube), BOUND)

        asyncio.run(with_client())


def restricted(plane: ControlPlane, namespace: str) -> Cluster:
    """With the accounts that replicas with executors need."""
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    plane.kubectl("label", "namespace", namespace, enforced)
    for account in (SETTINGS.driver_account, SETTINGS.executor_account):
        plane.kubectl("-n", namespace, "create", "serviceaccount", account)
    return Cluster(plane, namespace)


async def until(orchestrator: KubernetesOrchestrator, holds: Callable[[], object]) -> None:
    """Steps until it does."""
    while True:
        await orchestrator.step()
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.1)


def of(kube: Kube, *wanted: ReplicaSpec, clock: Callable[[], float] = time.monotonic) -> KubernetesOrchestrator:
    """An operator's, that has begun."""
    orchestrator = KubernetesOrchestrator(kube, SETTINGS, clock)
    for each in wanted:
        orchestrator.ensure(each)
    orchestrator.retain([each.key for each in wanted])
    return orchestrator


def one(orchestrator: KubernetesOrchestrator, spec: ReplicaSpec) -> Observation:
    (observation,) = orchestrator.observe(spec.key)
    return observation


RUNNING = {
    "phase": "Running",
    "containerStatuses": [
        {
            "name": "replica",
            "image": "x",
            "imageID": "x",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:10Z"}},
        }
    ],
}


def with_state(state: dict[str, Any], last: dict[str, Any], restarts: int) -> dict[str, Any]:
    """A status of a pod whose container was started again."""
    (container,) = RUNNING["containerStatuses"]
    statuses = [{**container, "state": state, "lastState": last, "restartCount": restarts}]
    return {"phase": "Running", "containerStatuses": statuses}
