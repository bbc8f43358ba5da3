"""Failed executors are reported, even if Spark removed their pods before the operator looked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.orchestrator.clusters import Cluster, of, one
from tests.orchestrator.pods import LARGE, SETTINGS
from tests.waiting import BOUND, until
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.kube.client import INSTANCES, ApiError, Kube
from tidemark_operator.kube.objects import PODS, Objects
from tidemark_operator.orchestrator.interface import Observation, Problem
from tidemark_operator.orchestrator.kubernetes import executor_losses, executors
from tidemark_operator.orchestrator.kubernetes.executor_losses import (
    EXECUTORS,
    FAILED,
    REPORTED_SECONDS,
    ExecutorLosses,
)
from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, Member, member
from tidemark_operator.orchestrator.kubernetes.pod_observation import observe_executors

REMEDY = "an executor ended with exit code 137; give executors more memory: spec.executors.resources"
OUT_OF_MEMORY = Problem("OOMKilled", REMEDY)


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


def lost_of(observation: Observation) -> Problem | None:
    return observation.executors.lost if observation.executors else None


def test_it_is_told_for_ten_minutes_and_of_its_own_driver() -> None:
    """The last one, however many there were; who left in good order is none of them, and labels alone say nothing."""
    now = 0.0
    told = ExecutorLosses(None, lambda: now)  # type: ignore[arg-type]
    metadata = {"labels": member(LARGE, SETTINGS).labels(EXECUTOR), "ownerReferences": owned_by("r2-0", "d1")}
    told.note({"metadata": metadata, "status": failed()})
    told.note({"metadata": metadata, "status": failed(0, "Completed") | {"phase": "Succeeded"}})
    told.note({"metadata": {**metadata, "ownerReferences": []}, "status": failed(1, "Error")})

    assert told.last("d1") == OUT_OF_MEMORY
    assert told.last("d2") is None
    now = REPORTED_SECONDS - 1
    told.forget()
    assert told.last("d1") == OUT_OF_MEMORY
    now = REPORTED_SECONDS
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
        (EVICTED, Problem("Evicted", EVICTED["message"])),
        (failed(137, "Error") | EVICTED, Problem("Evicted", EVICTED["message"])),
        (NEVER_BEGAN, Problem("OutOfcpu", NEVER_BEGAN["message"])),
        ({"phase": "Failed"}, Problem("Failed", "Failed")),
    ],
)
def test_a_pod_that_its_node_ended_is_told_in_the_nodes_words(status: dict[str, Any], told: Problem) -> None:
    """Also where no container is left in it, or none ever was."""
    losses = ExecutorLosses(None)  # type: ignore[arg-type]
    pod = {"metadata": {"ownerReferences": owned_by("r2-0", "d1")}, "status": status}
    losses.note(pod)

    assert losses.last("d1") == observe_executors(2, [pod]).problem == told


class ApiServer:
    """What it does at each asking, one after the other, and then it is over; `at`: what the clock says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *does: float | ApiError) -> None:
        """A watch of so many seconds, or one that is refused."""
        self._does = list(does)
        self.at, self.asked, self.pauses = 0.0, list[str](), list[float]()
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def changes(self, *how: Any) -> tuple[list[Any], str]:
        self.asked.append(how[4])
        does = self._does.pop(0)
        if isinstance(does, ApiError):
            raise does
        self.at += does
        return [], str(len(self.asked))

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.at += seconds
        if not self._does:
            raise Over

    def watched(self) -> None:
        with pytest.raises(ExceptionGroup) as ended:
            asyncio.run(ExecutorLosses(self, lambda: self.at).watch(["ns"]))  # type: ignore[arg-type]
        assert ended.group_contains(Over)


class Over(Exception):
    """Nothing more to do."""


def test_must_an_api_server_that_ends_each_watch_at_once_is_asked_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """In good order, as one that shuts down may; a watch that lasted is followed by the next one."""
    server = ApiServer(monkeypatch, 0.0, 0.25, 8.0)
    server.watched()

    assert server.pauses == [executor_losses.LEAST_SECONDS, executor_losses.LEAST_SECONDS - 0.25, 0.0]
    assert server.asked == ["", "1", "2"]


def test_must_an_api_server_that_refuses_is_asked_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And says so once. That it lists what it does not let watch is no success."""
    refused = ApiError(403, "no watch")
    server = ApiServer(monkeypatch, refused, 0.0, refused, 0.0, refused, 0.0, 8.0, 0.0, refused)
    server.watched()

    assert server.asked == ["", "", "2", "", "4", "", "6", "7", "8"]
    assert server.pauses == [1.0, 1.0, 2.0, 1.0, 4.0, 1.0, 0.0, 1.0, 1.0]
    assert [record.getMessage() for record in caplog.records] == 2 * [
        "failed executors cannot be watched in namespace ns: no watch"
    ]


def test_must_a_watch_that_is_too_old_begins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With what there is now, soon, and without a word: it happens."""
    server = ApiServer(monkeypatch, 0.0, 8.0, ApiError(410, "too old resource version"), 0.0, 8.0)
    server.watched()

    assert server.asked == ["", "1", "2", "", "4"]
    assert server.pauses == [1.0, 0.0, 1.0, 1.0, 0.0]
    assert caplog.records == []


def test_must_many_namespaces_take_turns() -> None:
    """A few at a time, each from where it was, and none is forgotten."""
    namespaces = [f"ns{number}" for number in range(5 * executor_losses.AT_ONCE)]

    class Slow:
        def __init__(self) -> None:
            self.now = self.most = 0
            self.all_thrice = asyncio.Event()
            self.asked: dict[str, list[tuple[str, int]]] = {name: [] for name in namespaces}

        async def changes(self, resource: object, namespace: str, *how: Any) -> tuple[list[Any], str]:
            *_, since, seconds = how
            self.now, asked = self.now + 1, self.asked[namespace]
            self.most = max(self.most, self.now)
            asked.append((since, seconds))
            await asyncio.sleep(0.01)
            self.now -= 1
            if all(len(asked) >= 3 for asked in self.asked.values()):
                self.all_thrice.set()
            return [], f"{namespace} {len(asked)}"

    async def scenario() -> Slow:
        server = Slow()
        watching = asyncio.create_task(ExecutorLosses(server, Ticking()).watch(namespaces))  # type: ignore[arg-type]
        await asyncio.wait_for(server.all_thrice.wait(), BOUND)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return server

    server = asyncio.run(scenario())

    assert server.most == executor_losses.AT_ONCE
    for namespace, asked in server.asked.items():
        assert asked[:3] == [
            (since, executor_losses.SHORTEST_SECONDS) for since in ("", f"{namespace} 1", f"{namespace} 2")
        ]


class Ticking:
    """A clock by which each watch has lasted for long."""

    now = 0.0

    def __call__(self) -> float:
        self.now += executor_losses.WATCH_SECONDS
        return self.now


@pytest.mark.cluster
def test_must_watches_of_many_namespaces_leave_room_for_all_else(control_plane: ControlPlane) -> None:
    """With more of them than the client has connections several times over, requests are answered within their time."""
    namespaces = tuple(f"nobody-{number}" for number in range(400))

    async def scenario() -> None:
        async with Kube.connect(control_plane.kubeconfig, namespaces) as kube:
            watching = asyncio.create_task(ExecutorLosses(Objects(kube)).watch(namespaces))
            try:
                for _ in range(10):
                    await asyncio.sleep(1)
                    assert await kube.get(INSTANCES, "default", "nobody") is None
                assert not watching.done()
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(scenario())
