"""Executors whose driver was killed in its pod: the next driver there deletes them, by its own token.

At a real API server. There is no kubelet, so pods wait for a node, as they do where there is no room.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.orchestrator.clusters import Cluster
from tests.orchestrator.pods import LARGE, SETTINGS
from tidemark_operator.orchestrator.kubernetes.driver import pod_template
from tidemark_operator.orchestrator.kubernetes.names import DRIVER, EXECUTOR, ReplicaShape, member
from tidemark_replica.errors import ExecutorsNotDeleted
from tidemark_replica.options import parse
from tidemark_replica.spark.executor_pods import ExecutorPods

pytestmark = [pytest.mark.cluster, pytest.mark.broad]

MINE = member(LARGE, SETTINGS)
OTHER = ReplicaShape(LARGE, "b17e44d0")


def labels(of: ReplicaShape) -> str:
    """The labels of executors that the driver's pod gets, as it understands them."""
    (container,) = pod_template(of, SETTINGS)["spec"]["containers"]
    program, *arguments = container["args"]
    assert program == "tidemark_replica"
    return parse(arguments).executor_labels


def make_pod(cluster: Cluster, name: str, its: dict[str, str]) -> None:
    drop: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"securityContext": security, "containers": [{"name": "c", "image": "x", "securityContext": drop}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": its}, "spec": spec}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))


def account(cluster: Cluster, folder: Path, *verbs: str) -> str:
    """The driver's, with these rights on pods, as a pod has it; the API server's address."""
    name = SETTINGS.driver_account
    granted = ",".join(verbs)
    cluster.kubectl("create", "role", "driver", f"--verb={granted}", "--resource=pods")
    cluster.kubectl("create", "rolebinding", "driver", "--role=driver", f"--serviceaccount={cluster.namespace}:{name}")
    (folder / "token").write_text(cluster.kubectl("create", "token", name))
    (known,) = yaml.safe_load(cluster.plane.kubeconfig.read_text())["clusters"]
    (folder / "ca.crt").write_bytes(base64.b64decode(known["cluster"]["certificate-authority-data"]))
    return str(known["cluster"]["server"])


def test_a_driver_deletes_the_executors_of_the_one_before_and_no_other_pod(cluster: Cluster, tmp_path: Path) -> None:
    """Neither its own, nor those of the shape beside it. There may be none."""
    server = account(cluster, tmp_path, "deletecollection")
    make_pod(cluster, "left-1", MINE.labels(EXECUTOR))
    make_pod(cluster, "left-2", MINE.labels(EXECUTOR))
    make_pod(cluster, "driver", MINE.labels(DRIVER))
    make_pod(cluster, "beside", OTHER.labels(EXECUTOR))

    for _ in range(2):
        ExecutorPods(f"k8s://{server}", cluster.namespace, tmp_path).delete(labels(MINE))
        assert cluster.kubectl("get", "pods", "-o", "name").split() == ["pod/beside", "pod/driver"]


def test_a_driver_without_the_right_to_delete_executors_names_the_right(cluster: Cluster, tmp_path: Path) -> None:
    """And does not start Spark beside them."""
    server = account(cluster, tmp_path, "get", "list")
    with pytest.raises(ExecutorsNotDeleted, match=r"403 Forbidden; .* needs the verb deletecollection on pods"):
        ExecutorPods(f"k8s://{server}", cluster.namespace, tmp_path).delete(labels(MINE))


def test_a_driver_reports_that_the_api_server_does_not_answer(tmp_path: Path) -> None:
    """A pod without a token, too."""
    with pytest.raises(ExecutorsNotDeleted, match="No such file"):
        ExecutorPods("k8s://https://127.0.0.1:1", "ns", tmp_path).delete("a=b")
