"""Executors that failed are told of, though Spark has removed their pods before anybody looks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.bounds import until
from tests.orchestrator.clusters import Cluster, of, one
from tests.orchestrator.pods import LARGE, SETTINGS
from tidemark_operator.kube.client import Kube
from tidemark_operator.kube.objects import PODS, Objects
from tidemark_operator.orchestrator.interface import Observation, Trouble
from tidemark_operator.orchestrator.kubernetes import executors
from tidemark_operator.orchestrator.kubernetes.losses import EXECUTORS, FAILED, TOLD_SECONDS, Losses
from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, Member, member

REMEDY = "one ended with exit code 137; give executors more memory: spec.executors.resources"
OUT_OF_MEMORY = Trouble("OOMKilled", REMEDY)


def failed(code: int = 137, reason: str = "OOMKilled") -> dict[str, Any]:
    terminated = {"exitCode": code, "reason": reason, "startedAt": None, "finishedAt": None}
    container = {"name": "executor", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    return {"phase": "Failed", "containerStatuses": [{**container, "state": {"terminated": terminated}}]}


def owned_by(driver: str, uid: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": driver, "uid": uid, "controller": True}]


def lose(cluster: Cluster, wanted: Member, name: str, owners: list[dict[str, Any]]) -> None:
    """An executor, as Spark makes it of the template."""
    made = executors.pod_template(wanted, SETTINGS)
    made["spec"]["containers"][0]["image"] = "x"
    made["metadata"] |= {"name": name, "ownerReferences": owners}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(made))
    cluster.report(name, failed())


@pytest.mark.cluster
def test_a_pod_that_failed_and_is_gone_is_seen(cluster: Cluster) -> None:
    """Whatever came to be since the last time, and nothing twice."""
    wanted = member(cluster.replica(LARGE), SETTINGS)

    async def scenario(kube: Kube) -> None:
        objects = Objects(kube)
        asked = (PODS, cluster.namespace, EXECUTORS, FAILED)
        before, since = await objects.changes(*asked, "", 1)
        assert list(before) == []
        await asyncio.to_thread(lose, cluster, wanted, "gone", [])
        await asyncio.to_thread(cluster.kubectl, "delete", "pod", "gone", "--force", "--grace-period=0")
        seen, since = await objects.changes(*asked, since, 1)
        assert {pod["metadata"]["name"] for pod in seen} == {"gone"}
        again, _ = await objects.changes(*asked, since, 1)
        assert list(again) == []

    cluster.run(scenario)


@pytest.mark.cluster
def test_how_an_executor_ended_is_said_of_its_replica(cluster: Cluster) -> None:
    """With what to raise."""
    spec = cluster.replica(LARGE)
    wanted = member(spec, SETTINGS)
    driver = f"{wanted.name}-0"

    async def scenario(kube: Kube) -> None:
        orchestrator = of(kube, spec)
        running = asyncio.create_task(orchestrator.run())
        try:
            await asyncio.to_thread(until, lambda: f"pod/{driver}" in cluster.made())
            uid = cluster.kubectl("get", "pod", driver, "--output=jsonpath={.metadata.uid}")
            await asyncio.to_thread(lose, cluster, wanted, "lost", owned_by(driver, uid))
            await asyncio.to_thread(until, lambda: lost_of(one(orchestrator, spec)) == OUT_OF_MEMORY)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    cluster.run(scenario)


def lost_of(observation: Observation) -> Trouble | None:
    return observation.executors.lost if observation.executors else None


def test_it_is_told_for_ten_minutes_and_of_its_own_driver() -> None:
    """The last one, however many there were; who left in good order is none of them, and labels alone say nothing."""
    now = 0.0
    losses = Losses(None, lambda: now)  # type: ignore[arg-type]
    metadata = {"labels": member(LARGE, SETTINGS).labels(EXECUTOR), "ownerReferences": owned_by("r2-0", "d1")}
    losses.note({"metadata": metadata, "status": failed()})
    losses.note({"metadata": metadata, "status": failed(0, "Completed")})
    losses.note({"metadata": {**metadata, "ownerReferences": []}, "status": failed(1, "Error")})

    assert losses.last("d1") == OUT_OF_MEMORY
    assert losses.last("d2") is None
    now = TOLD_SECONDS - 1
    losses.forget()
    assert losses.last("d1") == OUT_OF_MEMORY
    now = TOLD_SECONDS
    assert losses.last("d1") is None
