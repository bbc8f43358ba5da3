"""The operator, run under the account that the chart gives it: it does its work, and is refused nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.bounds import BOUND
from tests.chart.render import NAMESPACE
from tests.chart.test_accepted import cluster, rights
from tidemark_devcluster.plane import ControlPlane

__all__ = ["cluster", "rights"]

pytestmark = pytest.mark.cluster

GROUP = "compute.tidemark.dev"
INSTANCE = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "ComputeInstance",
    "metadata": {"name": "default", "namespace": "team-a"},
    "spec": {"storage": {"location": "/data"}},
}
DATAFLOW = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "Dataflow",
    "metadata": {"name": "x", "namespace": "team-a"},
    "spec": {"instance": "default", "sql": "SELECT 1 AS a", "index": {}},
}


@pytest.fixture
def kubeconfig(rights: ControlPlane, tmp_path: Path) -> Path:
    """One that holds the operator's service account and nothing else."""
    token = rights.kubectl("create", "token", "tidemark-operator", "-n", NAMESPACE).strip()
    document = yaml.safe_load(rights.kubeconfig.read_text())
    for user in document["users"]:
        user["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def log(kubeconfig: Path, tmp_path: Path) -> Iterator[Path]:
    """What an operator says that looks after team-a and team-b, and has no planner."""
    path = tmp_path / "log"
    options = ["--kubeconfig", str(kubeconfig), "--state-dir", str(tmp_path / "state"), "--lease-namespace", NAMESPACE]
    options += ["--namespace", "team-a", "--namespace", "team-b", "--planner", "127.0.0.1:1"]
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
    """It lists, watches, leads, and writes status. Edits reach it, so its watches work too."""
    rights.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([INSTANCE, DATAFLOW]))
    wait = ("wait", "-n", "team-a", "dataflow/x", "--timeout=110s")

    rights.kubectl(*wait, "--for=condition=InstanceFound")
    rights.kubectl("patch", "-n", "team-a", "dataflow/x", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    rights.kubectl(*wait, "--for=jsonpath={.status.observedGeneration}=2")

    assert "forbidden" not in log.read_text().lower()
