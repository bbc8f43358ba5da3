"""A release comes, is upgraded, goes and comes elsewhere, by the guides' own commands, on a control plane of its own.

No pod runs there: `--wait`, `helm test` and what asks for pods are left to tests/cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runbooks.guides import OF_READERS, Block, Shell, blocks
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.programs.build import Binaries, ensure_helm
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_operator.gateway.server.endpoint_slice import AUTHORITY

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
NEEDS_PODS = ("helm test ", "kubectl rollout status ", "tidemark query ", "kubectl tidemark ")
OF_A_RELEASE = (
    *("deployments", "services", "endpointslices", "secrets", "configmaps", "serviceaccounts", "roles", "rolebindings"),
    *("networkpolicies", "poddisruptionbudgets", "leases", "pods"),
)
RBAC = "rbac.authorization.k8s.io"
MADE_FOR_A_VIEW = {"namespace", "secret"} | {
    f"{kind}.compute.tidemark.dev" for kind in ("computeinstance", "computereplica", "datasource", "dataflow")
}


@pytest.fixture
def shell(control_plane_binaries: Binaries, tmp_path: Path) -> Iterator[Shell]:
    """Somebody with a checkout and a cluster on which nothing is."""
    helm = ensure_helm(os.environ, ProgressOutput(open(os.devnull, "w")))  # noqa: SIM115
    environ = {f"HELM_{name}_HOME": str(tmp_path / name) for name in ("CACHE", "CONFIG", "DATA")} | OF_READERS
    with ControlPlane.started(tmp_path / "plane", control_plane_binaries) as plane:
        shell = Shell(plane.layout.kubectl, plane.kubeconfig, "team-a", tmp_path, environ, helm)
        shell.prepare()
        yield shell


def without_pods(block: Block) -> Block:
    kept = [line.removesuffix(" --wait") for line in block.text.splitlines() if not line.startswith(NEEDS_PODS)]
    return replace(block, text="\n".join(kept))


def cluster_blocks(page: str, heading: str) -> list[Block]:
    return [without_pods(b) for b in blocks(page) if b.kind == "sh cluster" and b.heading == heading]


def output_of(shell: Shell, text: str) -> str:
    return shell.run(Block("asked", "sh", text))


def test_a_release_comes_goes_and_comes_elsewhere(shell: Shell) -> None:
    """Definitions stay, and with them what is of these kinds; without `--take-ownership` they would be in the way."""
    first, elsewhere = cluster_blocks("install", "Installing with Helm")
    assert "STATUS: deployed" in shell.run(first)
    (view,) = cluster_blocks("install", "A first view")
    assert {line.split("/")[0] for line in shell.run(view).splitlines() if line.endswith(" created")} == MADE_FOR_A_VIEW
    reader, binding, authority = cluster_blocks("install", "Queries")
    assert "rolebinding.rbac.authorization.k8s.io/reader-reads created" in shell.run(reader)
    assert shell.run(binding).splitlines() == [
        "rolebinding.rbac.authorization.k8s.io/anne-reaches-tidemark created",
        "rolebinding.rbac.authorization.k8s.io/anne-reads created",
    ]
    output_of(
        shell,
        "kubectl get role tidemark-reach-gateway -n tidemark-system && kubectl get clusterrole tidemark-read-data",
    )
    output_of(shell, f"kubectl annotate endpointslice tidemark-gateway -n tidemark-system {AUTHORITY}=PEM")
    shell.run(authority)
    assert (shell.folder / "ca.crt").read_text() == "PEM"

    (upgrade,) = cluster_blocks("upgrade", "The upgrade")
    assert "REVISION: 2" in shell.run(upgrade)

    (uninstall,) = cluster_blocks("uninstall", "Uninstalling")
    of_helm, of_kubectl = (replace(uninstall, text=line) for line in uninstall.text.splitlines())
    shell.run(of_helm)
    left = set(output_of(shell, f"kubectl get {','.join(OF_A_RELEASE)} -n tidemark-system -o name").split())
    assert left <= {"configmap/kube-root-ca.crt", "serviceaccount/default", f"rolebinding.{RBAC}/anne-reaches-tidemark"}
    assert len(output_of(shell, "kubectl get crds -o name | grep tidemark").splitlines()) == 4

    with pytest.raises(AssertionError, match="invalid ownership metadata"):
        shell.run(replace(elsewhere, text=elsewhere.text.replace(" --take-ownership", "")))
    assert "NAMESPACE: elsewhere" in shell.run(elsewhere)

    shell.run(replace(of_helm, text=of_helm.text.replace("tidemark-system", "elsewhere")))
    shell.run(of_kubectl)
    assert "tidemark" not in output_of(shell, "kubectl get crds,clusterroles,clusterrolebindings -o name")
