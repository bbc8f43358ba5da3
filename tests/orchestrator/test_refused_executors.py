"""Executors that the API server does not admit: the driver finds out why, and has Spark ask for no more meanwhile.

At a real API server, by the driver's own rights. Spark does not run here: it is told by a double; what it makes of that
is seen in tests/oracle/test_executors.py, and of all of it in tests/cluster/whole/test_unavailable_executors.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.orchestrator.clusters import Cluster
from tests.orchestrator.pods import LARGE, SETTINGS
from tests.orchestrator.test_orphaned_executors import account, labels, make_pod
from tests.replica.worker_loop import Loop
from tidemark_operator.orchestrator.kubernetes.executors import template_text
from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, ReplicaShape, member
from tidemark_operator.resources.manifest.pods import Requests
from tidemark_protocol.ids import INSTANCE
from tidemark_protocol.messages.responses import Status
from tidemark_replica.command_loop.executors import POLL_SECONDS_MAX, Executors, ExecutorWatch
from tidemark_replica.errors import ExecutorsNotAdmitted, PodsUnknown
from tidemark_replica.spark.executor_pods import ExecutorPods, PodRefusal
from tidemark_replica.telemetry.status_repeater import StatusRepeater

pytestmark = [pytest.mark.cluster, pytest.mark.broad]

MINE = member(LARGE, SETTINGS)
SMALLEST = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "smallest"}}


def executors(cluster: Cluster, folder: Path, of: ReplicaShape = MINE) -> Executors:
    """The driver's pod has of them its rights, its labels and the file that it is given."""
    server = account(cluster, folder, "create", "get", "list", "watch", "delete", "deletecollection")
    (folder / "pod.yaml").write_text(template_text(of, SETTINGS))
    return Executors(ExecutorPods(f"k8s://{server}", cluster.namespace, folder), labels(of), 2, folder / "pod.yaml")


def limit(cluster: Cluster, cpu: str = "1") -> None:
    """No container may have more."""
    spec = {"limits": [{"type": "Container", "max": {"cpu": cpu}, "default": {"cpu": cpu}}]}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**SMALLEST, "spec": spec}))


def use_up(cluster: Cluster) -> None:
    """A quota of which nothing is left; its controller, which would count, does not run here."""
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    status = {"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}
    cluster.kubectl("patch", "resourcequota", "q", "--subresource=status", "--type=merge", "-p", json.dumps(status))


def refusal(made: Executors) -> PodRefusal | None:
    return made.pods.refusal(json.loads(made.template.read_text()))


def test_a_pod_of_the_template_is_admitted_and_none_is_made(cluster: Cluster, tmp_path: Path) -> None:
    """Under Pod Security `restricted`, with an account that is there, by the rights that a driver has."""
    assert refusal(executors(cluster, tmp_path)) is None
    assert cluster.kubectl("get", "pods", "-o", "name") == ""


def test_a_quota_that_is_used_up_is_told_as_such(cluster: Cluster, tmp_path: Path) -> None:
    """In the API server's words, which name it."""
    use_up(cluster)
    found = refusal(executors(cluster, tmp_path))
    assert found is not None
    assert found.reason == "QuotaExceeded"
    assert "exceeded quota: q" in found.message


def test_requests_above_limits_and_a_missing_account_are_told(cluster: Cluster, tmp_path: Path) -> None:
    """Neither is looked at before there is a pod."""
    asked = replace(LARGE.pod.executors, requests=Requests("9"))
    greedy = member(replace(LARGE, pod=replace(LARGE.pod, executors=asked)), SETTINGS)
    made = executors(cluster, tmp_path, greedy)
    found = refusal(made)
    assert found is not None
    assert (found.reason, "must be less than or equal to cpu limit" in found.message) == ("Refused", True)

    made.template.write_text(template_text(MINE, SETTINGS))
    cluster.kubectl("delete", "serviceaccount", SETTINGS.executor_account)
    missing = refusal(made)
    assert missing is not None
    assert f'serviceaccount "{SETTINGS.executor_account}" not found' in missing.message


def test_only_pods_that_may_still_run_are_counted(cluster: Cluster, tmp_path: Path) -> None:
    """Not those of others, nor what has ended."""
    made = executors(cluster, tmp_path)
    for name in ("waits", "ended"):
        make_pod(cluster, name, MINE.labels(EXECUTOR))
    make_pod(cluster, "beside", ReplicaShape(LARGE, "b17e44d0").labels(EXECUTOR))
    cluster.report("ended", {"phase": "Failed"})
    assert made.pods.count(made.labels) == 1


def test_an_api_server_that_does_not_answer_says_nothing_of_executors(tmp_path: Path) -> None:
    """It is neither admission nor refusal."""
    pods = ExecutorPods("k8s://https://127.0.0.1:1", "ns", tmp_path)
    with pytest.raises(PodsUnknown):
        pods.count("a=b")
    with pytest.raises(PodsUnknown):
        pods.refusal({"metadata": {}})


def test_spark_is_not_started_where_no_executor_is_admitted(cluster: Cluster, tmp_path: Path) -> None:
    """The caller tries again; once there is room, it starts."""
    made = executors(cluster, tmp_path)
    limit(cluster)
    with pytest.raises(ExecutorsNotAdmitted, match=r"Refused: .*maximum cpu usage per Container is 1, but limit is 4"):
        made.prepare()
    limit(cluster, "8")
    made.prepare()


class Spark:
    """The session of a driver, as far as it is asked about executors."""

    def __init__(self) -> None:
        self.registered, self.asked = 0, [2]
        context = SimpleNamespace(
            getExecutorIds=lambda: SimpleNamespace(size=lambda: self.registered),
            requestTotalExecutors=lambda number, local, where: self.asked.append(number),
        )
        jvm = SimpleNamespace(PythonUtils=SimpleNamespace(toScalaMap=dict))
        self.sparkContext = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context), _jvm=jvm)


class Scene:
    """A watch whose clock is put forward past every pause."""

    def __init__(self, executors: Executors) -> None:
        self.loop, self.now, self.spark = Loop(), 0.0, Spark()
        self.session: Any = None
        self.repeater = StatusRepeater(self.loop.said.append)
        self.watch = ExecutorWatch(executors, lambda: self.session, self.loop.jobs, self.repeater, lambda: self.now)

    def until(self, holds: Any) -> None:
        def step() -> None:
            self.now += POLL_SECONDS_MAX
            self.watch.maintain()

        self.loop.run_until(holds, step)

    def told(self) -> list[str]:
        """The reasons, one after the other; empty: all is well again."""
        statuses = [each for each in self.loop.said if isinstance(each, Status)]
        assert {(each.id, each.kind) for each in statuses} <= {(INSTANCE, "executors")}
        return [each.fields.get("reason", "") for each in statuses]


def test_a_refusal_and_its_end_are_reported_once(cluster: Cluster, tmp_path: Path) -> None:
    """Before Spark has started; to a new client again."""
    scene = Scene(executors(cluster, tmp_path))
    limit(cluster)
    scene.until(lambda: scene.told() == ["Refused"])
    scene.repeater.report_again()
    assert scene.loop.said[0] == scene.loop.said[1]
    limit(cluster, "8")
    scene.until(lambda: scene.told() == ["Refused", "Refused", ""])


def test_spark_asks_for_no_more_than_there_are_until_one_is_admitted(cluster: Cluster, tmp_path: Path) -> None:
    """One runs, and the other, which was lost, is refused. A pod that waits for a node is there, and is no refusal."""
    scene = Scene(executors(cluster, tmp_path))
    scene.session, scene.spark.registered = scene.spark, 1
    make_pod(cluster, "runs", MINE.labels(EXECUTOR))
    limit(cluster)
    scene.until(lambda: scene.spark.asked[-1] == 1)
    scene.until(lambda: scene.told() == ["Refused"])
    limit(cluster, "8")
    scene.until(lambda: scene.spark.asked[-1] == 2)
    scene.until(lambda: scene.told() == ["Refused", ""])
    limit(cluster)
    make_pod_before(cluster, "waits")
    before = len(scene.spark.asked)
    scene.until(lambda: len(scene.spark.asked) > before + 1)
    assert scene.told() == ["Refused", ""]


def make_pod_before(cluster: Cluster, name: str) -> None:
    """One that was admitted while it could be."""
    limit(cluster, "8")
    make_pod(cluster, name, MINE.labels(EXECUTOR))
    limit(cluster)


def test_nothing_is_asked_while_all_are_there(tmp_path: Path) -> None:
    """No request is made, or it would fail: there is no API server. That they came is known when the JVM dies."""
    scene = Scene(Executors(ExecutorPods("k8s://https://127.0.0.1:1", "ns", tmp_path), "a=b", 2, tmp_path / "pod.yaml"))
    scene.session = scene.spark
    assert scene.watch.never_registered
    scene.spark.registered = 2
    scene.until(lambda: not scene.watch.never_registered)
    assert scene.spark.asked == [2]
    assert scene.told() == []
