"""The operator, run under the account that the chart gives it: it does its work, and is refused nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import yaml

from tests.chart.clusters import cluster, rights
from tests.chart.render import NAMESPACE
from tests.waiting import BOUND, until
from tidemark_devcluster.control_plane.control_plane import ControlPlane

__all__ = ["cluster", "rights"]

pytestmark = pytest.mark.cluster

GROUP = "compute.tidemark.dev"
DATAFLOW = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "Dataflow",
    "metadata": {"name": "x", "namespace": "team-a"},
    "spec": {"instance": "default", "sql": "SELECT 1 AS a", "index": {}},
}
SIZE = {"resources": {"limits": {"cpu": 1, "memory": "2Gi"}}}
REPLICA = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "ComputeReplica",
    "metadata": {"name": "r1", "namespace": "team-a"},
    "spec": {
        "instance": "default",
        **SIZE,
        "executors": {"instances": 1, **SIZE},
        "scratch": {"size": "2Gi", "claimName": "scratch"},
        "updateStrategy": "Recreate",
    },
}
STORE = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store", "namespace": "team-a"}}
OF_A_REPLICA = ("statefulsets", "services", "configmaps", "secrets", "poddisruptionbudgets")


def kubeconfig_of(plane: ControlPlane, account: str, folder: Path) -> Path:
    """One that holds the service account's token and nothing else."""
    token = plane.kubectl("create", "token", account, "-n", NAMESPACE).strip()
    document = yaml.safe_load(plane.kubeconfig.read_text())
    for user in document["users"]:
        user["user"] = {"token": token}
    path = folder / f"kubeconfig-{account}"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def log(rights: ControlPlane, tmp_path: Path) -> Iterator[Path]:
    """The log of an operator that looks after team-a and team-b, and has no planner."""
    path, kubeconfig = tmp_path / "log", kubeconfig_of(rights, "tidemark-operator", tmp_path)
    options = ["--kubeconfig", str(kubeconfig), "--state-dir", str(tmp_path / "state"), "--lease-namespace", NAMESPACE]
    options += ["--namespace", "team-a", "--namespace", "team-b", "--planner", "127.0.0.1:1"]
    options += ["--orchestrator", "kubernetes", "--replica-image", "none"]
    options += ["--default-instance", "team-a/default", "--default-location", "s3://bucket/data"]
    options += ["--default-secret", "store"]
    with path.open("w") as output:
        operator = subprocess.Popen([sys.executable, "-m", "tidemark_operator", *options], stdout=output, stderr=output)
        try:
            yield path
            assert operator.poll() is None
        finally:
            operator.terminate()
            operator.wait(BOUND)


def test_an_operator_confined_to_its_namespaces_reconciles_and_is_refused_nothing(
    rights: ControlPlane, log: Path
) -> None:
    """It leads, makes the default instance, lists, watches, and writes status. Edits reach it, so its watches work."""
    rights.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(DATAFLOW))
    wait = ("wait", "-n", "team-a", "dataflow/x", f"--timeout={BOUND:.0f}s")

    rights.kubectl(*wait, "--for=condition=InstanceFound")
    rights.kubectl("patch", "-n", "team-a", "dataflow/x", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    rights.kubectl(*wait, "--for=jsonpath={.status.observedGeneration}=2")

    instance = rights.kubectl("get", "-n", "team-a", "computeinstance/default", "-o", "jsonpath={.spec.storage}")
    assert json.loads(instance) == {"location": "s3://bucket/data", "secretName": "store"}
    assert "forbidden" not in log.read_text().lower()


def test_an_operator_makes_and_removes_all_of_a_replica_and_is_refused_nothing(rights: ControlPlane, log: Path) -> None:
    """With executors, certificates and a budget for disruptions. In another shape it is another StatefulSet, and
    the one before is deleted."""
    began = made(rights)
    rights.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([STORE, REPLICA]))
    until(lambda: {kind for kind, _ in made(rights) - began} == {*OF_A_REPLICA})
    (first,) = shapes(rights)

    patch = '{"spec": {"resources": {"limits": {"memory": "3Gi"}}}}'
    rights.kubectl("patch", "-n", "team-a", "computereplica/r1", "--type=merge", "-p", patch)

    until(lambda: shapes(rights) and first not in shapes(rights))
    assert "forbidden" not in log.read_text().lower()


def made(rights: ControlPlane) -> set[tuple[str, str]]:
    """The objects that the operator may have made, as kind and name."""
    found = set()
    for kind in OF_A_REPLICA:
        names = rights.kubectl("get", "-n", "team-a", kind, "-o", "name").split()
        found |= {(kind, name) for name in names if name != "secret/store"}
    return found


def shapes(rights: ControlPlane) -> list[str]:
    return rights.kubectl("get", "-n", "team-a", "statefulsets", "-o", "name").split()


def works(rights: ControlPlane, folder: Path, namespace: str, address: str, seconds: float) -> tuple[int, str]:
    """Run the check of the pod of `helm test`, under its account."""
    kubeconfig = kubeconfig_of(rights, "tidemark-test", folder)
    options = ["--kubeconfig", str(kubeconfig), "--lease-namespace", namespace, "--planner", address]
    options += ["--gateway", address]
    command = [sys.executable, "-m", "tidemark_operator.install_check", *options, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * BOUND, check=False)
    return done.returncode, done.stdout + done.stderr


def test_helm_test_passes_with_a_leader_and_planner_and_gateway_answer(
    rights: ControlPlane, log: Path, tmp_path: Path
) -> None:
    """And says who."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        status, output = works(rights, tmp_path, NAMESPACE, f"127.0.0.1:{port}", BOUND)
    finally:
        server.stop(None)

    assert status == 0, output + log.read_text()
    assert f"leads; the planner at 127.0.0.1:{port} and the gateway at 127.0.0.1:{port} answer" in output


def test_helm_test_fails_where_the_lease_cannot_be_seen(rights: ControlPlane, tmp_path: Path) -> None:
    """Its account may look at one Lease of its own namespace."""
    status, output = works(rights, tmp_path, "team-a", "127.0.0.1:1", BOUND)

    assert status == 1
    assert "Lease team-a/tidemark-operator cannot be read: 403" in output


def test_helm_test_fails_without_a_leader(rights: ControlPlane, tmp_path: Path) -> None:
    """A Lease that nobody renews is nobody's."""
    status, output = works(rights, tmp_path, NAMESPACE, "127.0.0.1:1", 0.1)

    assert status == 1
    assert f"no operator holds and renews Lease {NAMESPACE}/tidemark-operator" in output
