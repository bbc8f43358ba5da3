"""Resources that were deleted when no operator ran any more: the runbook lets go of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.runbooks.guides import Shell
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = pytest.mark.cluster
GROUP = "compute.tidemark.dev"
MADE = {"apiVersion": f"{GROUP}/v1alpha1", "metadata": {"name": "read", "finalizers": [f"{GROUP}/in-use"]}}
READ = [
    {**MADE, "kind": "DataSource", "spec": {"instance": "default", "loadGenerator": {"tpch": {}}}},
    {**MADE, "kind": "Dataflow", "spec": {"instance": "default", "sql": "SELECT 1 AS a", "index": {}}},
]
KINDS = "dataflows,datasources,computereplicas,computeinstances"


def test_finalizers_are_taken_off_by_hand(kinds_installed: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """Without it they would wait for an operator."""
    plane = kinds_installed
    plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all(READ))
    plane.kubectl("delete", "-n", namespace, KINDS, "--all", "--wait=false")
    assert plane.kubectl("get", "-n", namespace, KINDS, "-o", "name").split() == [
        "dataflow.compute.tidemark.dev/read",
        "datasource.compute.tidemark.dev/read",
    ]
    shell = Shell(plane.layout.kubectl, plane.kubeconfig, namespace, tmp_path)
    shell.prepare()

    shell.follow("uninstall", "Take finalizers off")

    assert plane.kubectl("get", "-n", namespace, KINDS, "-o", "name") == ""
