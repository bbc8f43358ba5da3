"""Spark in the replica's image: alone in a pod, and as a driver with executors in pods of their own."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.cluster import pods
from tidemark_devcluster.images.build import Image
from tidemark_devcluster.node.cluster import OneNode

JOBS = Path(__file__).with_name("jobs")
VERBS = ("create", "get", "list", "watch", "delete", "deletecollection")


def test_a_session_of_a_replica_runs_in_a_pod(node: OneNode, namespace: str, images: dict[str, Image]) -> None:
    """All forms of files, an exchange, Python; classes come out of the archive."""
    files = pods.config_map("job", {"local_job.py": (JOBS / "local.py").read_text()})
    made = pods.with_files(pods.pod("local", images["replica"].name, ["local_job"]), "job")
    pods.apply(node, namespace, files)
    said = json.loads(pods.run(node, namespace, made).splitlines()[-1])
    assert said["counts"] == dict.fromkeys(("parquet", "json", "csv", "orc"), 1000)
    assert said["sum"] == sum(range(1000))
    assert any(option.startswith("-XX:SharedArchiveFile=") for option in said["jvm"])


def executor_template() -> dict[str, Any]:
    """No token, no right: what Spark itself adds is a name, variables and an entry point's argument."""
    mounts = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "secret", "mountPath": "/etc/secret"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"role": "executor"}},
        "spec": {
            "serviceAccountName": "executor",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pods.POD_SECURITY,
            "containers": [{"name": "executor", "securityContext": pods.SECURITY, "volumeMounts": mounts}],
            "volumes": [{"name": "tmp", "emptyDir": {}}, SECRET_VOLUME],
        },
    }


SECRET_VOLUME = {"name": "secret", "secret": {"secretName": "spark", "defaultMode": 0o440}}


def driver(image: Image) -> dict[str, Any]:
    """The driver's pod: it may do six things to pods, and has no other right."""
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}
    environment = [{"name": n, "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in fields.items()]
    environment += [{"name": "EXECUTOR_IMAGE", "value": image.name}, {"name": "SPARK_LOCAL_DIRS", "value": "/local"}]
    made = pods.with_files(pods.pod("driver", image.name, ["executors_job"], env=environment), "job")
    spec = made["spec"]
    spec["serviceAccountName"], spec["automountServiceAccountToken"] = "driver", True
    spec["volumes"] += [SECRET_VOLUME, {"name": "local", "emptyDir": {}}]
    main = spec["containers"][0]
    main["volumeMounts"] += [{"name": "secret", "mountPath": "/etc/secret"}, {"name": "local", "mountPath": "/local"}]
    return made


def surroundings(secret: str) -> list[dict[str, Any]]:
    """Accounts, the driver's role, the secret of Spark's own authentication, and the programs."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "driver"}
    files = {
        "executors_job.py": (JOBS / "executors.py").read_text(),
        "executor.json": json.dumps(executor_template()),
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "driver"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "executor"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "driver"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(VERBS)}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "driver"},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": "driver"}],
        },
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "spark"}, "stringData": {"secret": secret}},
        pods.config_map("job", files),
    ]


class Application:
    """A driver that repeats its job, and its executors."""

    def __init__(self, node: OneNode, namespace: str) -> None:
        self.node, self.namespace = node, namespace

    def results(self) -> list[dict[str, Any]]:
        """What each job so far came to."""
        said = pods.logs(self.node, self.namespace, "driver")
        return [json.loads(line) for line in said.splitlines() if line.startswith('{"rows"')]

    def executors(self) -> list[dict[str, Any]]:
        return list(pods.get(self.node, self.namespace, "pods", "--selector=role=executor")["items"])

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
    pods.apply(node, namespace, *surroundings(secret), driver(images["replica"]))
    return Application(node, namespace)


def test_two_executors_do_a_job_without_a_right_of_their_own(application: Application, secret: str) -> None:
    """Every row is there once; executors have no token, and nobody's specification tells the secret."""
    result = application.wait_for_both()
    assert result["rows"] == 10_000
    assert result["uids"] == [pods.STRANGER]
    executors = application.executors()
    assert {one["metadata"]["name"] for one in executors} >= set(result["hosts"])
    for one in executors:
        assert not any("projected" in volume for volume in one["spec"]["volumes"])
        assert one["spec"]["serviceAccountName"] == "executor"
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
