"""Spark in the replica's image: alone in a pod, and as a driver with executors in pods.

The options of Spark, the template of executors and their volumes are those of the orchestrator; the driver's pod and
its program are of the test.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import pods
from tests.cluster.waiting import wait_for
from tests.waiting import until
from tidemark_devcluster.images.build import Image
from tidemark_devcluster.node.cluster import OneNode
from tidemark_operator.orchestrator.interface import PodSpec, ReplicaSpec
from tidemark_operator.orchestrator.kubernetes.driver import FIELDS
from tidemark_operator.orchestrator.kubernetes.executors import MASTER, pod_template, spark_conf, template_name
from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, ROLE, ReplicaShape, member
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings
from tidemark_operator.orchestrator.kubernetes.volumes import SECRET_FILE, TEMPLATE_FILE, TEMPLATES, shared_volumes
from tidemark_operator.resources.manifest.pods import Executors, Requests, ScratchVolume

JOBS = Path(__file__).with_name("jobs")
VERBS = ("create", "get", "list", "watch", "delete", "deletecollection")
EXECUTORS = 2


def test_a_session_of_a_replica_runs_in_a_pod(node: OneNode, namespace: str, images: dict[str, Image]) -> None:
    """All forms of files, an exchange, Python; classes come out of the archive. A JVM that finds it does not fit goes
    on without it, and says nothing: only where it is mapped it is used."""
    files = pods.config_map("job", {"local_job.py": (JOBS / "local.py").read_text()})
    made = pods.with_files(pods.pod("local", images["replica"].name, ["local_job"]), "job")
    pods.apply(node, namespace, files)
    document = json.loads(pods.run(node, namespace, made).splitlines()[-1])
    assert document["counts"] == dict.fromkeys(("parquet", "json", "csv", "orc"), 1000)
    assert document["sum"] == sum(range(1000))
    assert document["mapped"]


def job(namespace: str, settings: KubernetesSettings) -> ReplicaShape:
    """A replica of two small executors, whose driver runs a job of ours."""
    executors = Executors(EXECUTORS, cores=1, memory_bytes=1 << 30, requests=Requests("100m"))
    pod = PodSpec(executors=executors, scratch=ScratchVolume(2 << 30))
    return member(ReplicaSpec("uid-job", namespace, "job", 1, 1 << 30, pod=pod), settings)


def template(of: ReplicaShape, settings: KubernetesSettings) -> str:
    """The orchestrator's, for a user whom the image does not know."""
    made = pod_template(of, settings)
    made["spec"]["securityContext"] = pods.POD_SECURITY
    return json.dumps(made)


def driver(of: ReplicaShape, settings: KubernetesSettings) -> dict[str, Any]:
    """The driver's pod: it may do six things to pods, and has no other right."""
    environment = [{"name": n, "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in FIELDS.items()]
    arguments = [f"{name}={value}" for name, value in spark_conf(of, settings).items()]
    made = pods.pod("driver", settings.image, ["executors_job", MASTER, *arguments], env=environment)
    spec = made["spec"]
    spec["serviceAccountName"], spec["automountServiceAccountToken"] = settings.driver_account, True
    volumes, mounts = shared_volumes(of)
    spec["volumes"] = [*volumes, {"name": "executor", "configMap": {"name": template_name(of, settings)}}]
    spec["containers"][0]["volumeMounts"] = [*mounts, {"name": "executor", "mountPath": TEMPLATES}]
    return pods.with_files(made, "job")


def driver_context(of: ReplicaShape, settings: KubernetesSettings, secret: str) -> list[dict[str, Any]]:
    """Accounts, the driver's role, the secret of Spark's own authentication, and the programs."""
    account = settings.driver_account
    both = (account, settings.executor_account)
    accounts = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}} for name in both]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
    return [
        *accounts,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": account},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(VERBS)}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": account},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": account}],
        },
        secret_of_spark(of, secret),
        pods.config_map(template_name(of, settings), {TEMPLATE_FILE: template(of, settings)}),
        pods.config_map("job", {"executors_job.py": (JOBS / "executors.py").read_text()}),
    ]


def secret_of_spark(of: ReplicaShape, secret: str) -> dict[str, Any]:
    """The secrets by which Spark's processes know each other."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": of.name}, "stringData": {SECRET_FILE: secret}}


class Application:
    """A driver that repeats its job, and its executors."""

    def __init__(self, node: OneNode, of: ReplicaShape, settings: KubernetesSettings) -> None:
        self.node, self.of, self.settings = node, of, settings
        self.namespace = of.spec.namespace

    def results(self) -> list[dict[str, Any]]:
        """The result of each job so far."""
        output = pods.logs(self.node, self.namespace, "driver")
        return [json.loads(line) for line in output.splitlines() if line.startswith('{"rows"')]

    def executors(self) -> list[dict[str, Any]]:
        return list(pods.get(self.node, self.namespace, "pods", f"--selector={ROLE}={EXECUTOR}")["items"])

    def wait_for_both(self, after: int = 0) -> dict[str, Any]:
        """The first job after so many in which two executors took part."""
        until(lambda: self._alive() and any(len(result["hosts"]) == 2 for result in self.results()[after:]))
        return next(result for result in self.results()[after:] if len(result["hosts"]) == 2)

    def _alive(self) -> bool:
        assert pods.phase(self.node, self.namespace, "driver") in ("Pending", "Running"), pods.logs(
            self.node, self.namespace, "driver"
        )
        return pods.phase(self.node, self.namespace, "driver") == "Running"


@pytest.fixture
def secret() -> str:
    return secrets.token_hex(24)


@pytest.fixture
def application(node: OneNode, namespace: str, images: dict[str, Image], secret: str) -> Application:
    settings = KubernetesSettings(images["replica"].name, pull_policy="Never")
    made = Application(node, job(namespace, settings), settings)
    pods.apply(node, namespace, *driver_context(made.of, settings, secret), driver(made.of, settings))
    return made


def test_two_executors_do_a_job_without_a_right_of_their_own(application: Application, secret: str) -> None:
    """Every row is there once; executors have no token, and nobody's specification tells the secret."""
    result = application.wait_for_both()
    assert result["rows"] == 10_000
    assert result["uids"] == [pods.STRANGER]
    executors = application.executors()
    assert {one["metadata"]["name"] for one in executors} >= set(result["hosts"])
    for one in executors:
        assert not any("projected" in volume for volume in one["spec"]["volumes"])
        assert one["spec"]["serviceAccountName"] == application.settings.executor_account
        assert secret not in json.dumps(one)


def test_crash_an_executor_that_is_deleted_is_replaced(application: Application) -> None:
    """`--force`: nobody tells the driver, who finds out by asking."""
    lost = application.wait_for_both()["hosts"][0]
    application.node.kubectl("delete", "-n", application.namespace, "pod", lost, "--force", "--grace-period=0")
    before = len(application.results())
    until(lambda: lost not in application.wait_for_both(before)["hosts"])
    assert all(result["rows"] == 10_000 for result in application.results())


def test_crash_executors_go_with_their_driver(application: Application) -> None:
    """They are owned by its pod."""
    application.wait_for_both()
    application.node.kubectl("delete", "-n", application.namespace, "pod", "driver", "--force", "--grace-period=0")
    until(lambda: application.executors() == [])


def test_an_executor_that_does_not_know_the_secret_is_refused(application: Application, secret: str) -> None:
    """It ends, and takes no part in any job; with the secret that the driver knows, the next one does."""
    lost, stays = application.wait_for_both()["hosts"]
    pods.apply(application.node, application.namespace, secret_of_spark(application.of, secrets.token_hex(24)))
    application.node.kubectl("delete", "-n", application.namespace, "pod", lost, "--force", "--grace-period=0")

    def refused() -> bool:
        return any(_failed(pod) for pod in application.executors() if pod["metadata"]["name"] not in (lost, stays))

    wait_for("an executor that is refused", refused)
    assert all(set(result["hosts"]) <= {lost, stays} for result in application.results())
    pods.apply(application.node, application.namespace, secret_of_spark(application.of, secret))
    before = len(application.results())
    until(lambda: stays in application.wait_for_both(before)["hosts"])


def _failed(pod: dict[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses", ())
    return any((status["state"].get("terminated") or {}).get("exitCode") for status in statuses)
