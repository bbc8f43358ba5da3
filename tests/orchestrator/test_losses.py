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
from tidemark_operator.orchestrator.kubernetes import executors, losses
from tidemark_operator.orchestrator.kubernetes.losses import EXECUTORS, FAILED, TOLD_SECONDS, Losses
from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, Member, member
from tidemark_operator.orchestrator.kubernetes.observing import observe_executors

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
    told = Losses(None, lambda: now)  # type: ignore[arg-type]
    metadata = {"labels": member(LARGE, SETTINGS).labels(EXECUTOR), "ownerReferences": owned_by("r2-0", "d1")}
    told.note({"metadata": metadata, "status": failed()})
    told.note({"metadata": metadata, "status": failed(0, "Completed") | {"phase": "Succeeded"}})
    told.note({"metadata": {**metadata, "ownerReferences": []}, "status": failed(1, "Error")})

    assert told.last("d1") == OUT_OF_MEMORY
    assert told.last("d2") is None
    now = TOLD_SECONDS - 1
    told.forget()
    assert told.last("d1") == OUT_OF_MEMORY
    now = TOLD_SECONDS
    assert told.last("d1") is None


EVICTED = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "The node was low on resource: ephemeral-storage. Container executor was using 9Gi.",
}
NEVER_BEGAN = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (EVICTED, Trouble("Evicted", EVICTED["message"])),
        (failed(137, "Error") | EVICTED, Trouble("Evicted", EVICTED["message"])),
        (NEVER_BEGAN, Trouble("OutOfcpu", NEVER_BEGAN["message"])),
        ({"phase": "Failed"}, Trouble("Failed", "Failed")),
    ],
)
def test_a_pod_that_its_node_ended_is_told_in_the_nodes_words(status: dict[str, Any], told: Trouble) -> None:
    """Also where no container is left in it, or none ever was."""
    losses = Losses(None)  # type: ignore[arg-type]
    pod = {"metadata": {"ownerReferences": owned_by("r2-0", "d1")}, "status": status}
    losses.note(pod)

    assert losses.last("d1") == observe_executors(2, [pod]).trouble == told


def test_must_an_api_server_that_ends_each_watch_at_once_is_asked_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """In good order, as one that shuts down may; a watch that lasted is followed by the next one."""
    now, pauses, asked = 0.0, list[float](), list[str]()

    class Ends:
        """Each watch of these takes so many seconds."""

        lasts = iter([0.0, 0.25, 8.0])

        async def changes(self, *how: Any) -> tuple[list[Any], str]:
            nonlocal now
            asked.append(how[4])
            now += next(self.lasts)
            return [], str(len(asked))

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Losses(Ends(), lambda: now).watch("ns"))  # type: ignore[arg-type]

    assert pauses == [losses.LEAST_SECONDS, losses.LEAST_SECONDS - 0.25, 0.0]
    assert asked == ["", "1", "2"]
