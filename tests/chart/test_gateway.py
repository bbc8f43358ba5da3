"""The gateway's Service leads to the leading operator, and the command line finds it there.

Pods do not run here: what stands for `kubectl port-forward` names the port of the operator's process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chart.clusters import apply, cluster, rights
from tests.chart.render import NAMESPACE, rendered_objects
from tests.chart.test_operator_rights import kubeconfig_of
from tests.e2e.system import wait_for
from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane

__all__ = ["cluster", "rights"]

pytestmark = [pytest.mark.cluster, pytest.mark.broad]
SLICE = ("get", "endpointslice", "tidemark-gateway", "-n", NAMESPACE, "-o")
KUBECTL = """#!/bin/sh
if [ "$1" = port-forward ]; then
  echo "$@" > {folder}/forwarded
  echo "Forwarding from {address} -> 7443"
  exec sleep {bound}
fi
exec {kubectl} "$@"
"""


@dataclass
class Leading:
    """An operator's process, as a pod of this name."""

    plane: ControlPlane
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def found(self) -> dict[str, str]:
        document: dict[str, str] = json.loads((self.folder / "state" / "gateway.json").read_text())
        return document

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line of somebody with the cluster's kubeconfig, and this operator's token."""
        script = self.folder / "kubectl"
        address = self.found["address"]
        text = KUBECTL.format(folder=self.folder, address=address, bound=BOUND, kubectl=self.plane.layout.kubectl)
        script.write_text(text)
        script.chmod(0o755)
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        command = [sys.executable, "-m", "tidemark_cli", "frontiers", "-n", "team-a"]
        return subprocess.run(
            [*command, "--token-file", self.found["tokenFile"], *arguments],
            env={**os.environ, "KUBECONFIG": str(self.plane.kubeconfig), "PATH": path},
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )


@contextmanager
def operator(plane: ControlPlane, folder: Path, pod: str, kubeconfig: Path) -> Iterator[Leading]:
    """One that leads, or stands by, under the chart's account."""
    folder.mkdir()
    options = ["--kubeconfig", str(kubeconfig), "--state-dir", str(folder / "state"), "--lease-namespace", NAMESPACE]
    options += ["--namespace", "team-a", "--namespace", "team-b", "--planner", "127.0.0.1:1"]
    options += ["--orchestrator", "kubernetes", "--replica-image", "none"]
    options += ["--gateway-service", "tidemark-gateway", "--gateway-pod", f"{pod}/10.1.2.3"]
    with (folder / "log").open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", "tidemark_operator", *options], stdout=output, stderr=output)
        try:
            yield Leading(plane, folder, process)
        finally:
            process.terminate()
            process.wait(BOUND)


@pytest.fixture
def service(rights: ControlPlane) -> ControlPlane:
    """The chart's Service and EndpointSlice, as they are installed."""
    apply(rights, [b for b in rendered_objects("confined") if b["metadata"]["name"] == "tidemark-gateway"])
    return rights


def leads_to(plane: ControlPlane) -> list[str]:
    """Pods that the Service leads to."""
    return plane.kubectl(*SLICE, "jsonpath={.endpoints[*].targetRef.name}").split()


def test_the_service_leads_to_the_leader_and_nowhere_when_it_ends(service: ControlPlane, tmp_path: Path) -> None:
    """The Service leads to one of two operators. An operator that gets SIGTERM withdraws, and the other operator
    takes its place. Upgrades of the chart leave the address of the leader."""
    kubeconfig = kubeconfig_of(service, "tidemark-operator", tmp_path)
    assert leads_to(service) == []
    with ExitStack() as second:
        with operator(service, tmp_path / "one", "one", kubeconfig) as one:
            wait_for("the Service to lead to it", lambda: leads_to(service) == ["one"], one.log)
            two = second.enter_context(operator(service, tmp_path / "two", "two", kubeconfig))
            wait_for("another to stand by", lambda: "standing by: " in two.log(), two.log)
            apply(service, [b for b in rendered_objects("confined") if b["kind"] == "EndpointSlice"])
            assert leads_to(service) == ["one"]
            assert not (two.folder / "state" / "gateway.json").exists()
        wait_for("the Service to lead to the other", lambda: leads_to(service) == ["two"], two.log)
    assert leads_to(service) == []
    assert "forbidden" not in (one.log() + two.log()).lower()


def test_the_command_line_finds_the_gateway_by_the_service(service: ControlPlane, tmp_path: Path) -> None:
    """It forwards a port to the pod that leads, and takes nobody there who has no certificate for the Service."""
    kubeconfig = kubeconfig_of(service, "tidemark-operator", tmp_path)
    with operator(service, tmp_path / "one", "one", kubeconfig) as one:
        wait_for("the Service to lead to it", lambda: leads_to(service) == ["one"], one.log)

        done = one.cli()
        assert done.returncode == 0, done.stderr + one.log()
        forwarded = (one.folder / "forwarded").read_text().split()
        assert forwarded[1:] == ["--namespace", NAMESPACE, "--address", "127.0.0.1", "pod/one", ":7443"]

        refused = one.cli("--operator-namespace", "team-a")
        assert refused.returncode == 1
        assert "there is no EndpointSlice team-a/tidemark-gateway" in refused.stderr
        certificates = one.cli("--server", one.found["address"], "--certificate-authority", one.found["caFile"])
        assert certificates.returncode == 1, "no name of the Service is 127.0.0.1"
        assert "no gateway answers" in certificates.stderr

    gone = one.cli()
    assert gone.returncode == 1
    assert f"no operator leads: EndpointSlice {NAMESPACE}/tidemark-gateway has no endpoint" in gone.stderr


def test_a_deleted_endpointslice_is_said_and_found_again(service: ControlPlane, tmp_path: Path) -> None:
    """The leader may not make it: the chart does."""
    kubeconfig = kubeconfig_of(service, "tidemark-operator", tmp_path)
    service.kubectl("delete", "-n", NAMESPACE, "endpointslice", "tidemark-gateway")
    with operator(service, tmp_path / "one", "one", kubeconfig) as one:
        wait_for("it to be missed", lambda: "helm upgrade creates it" in one.log(), one.log)
        apply(service, [b for b in rendered_objects("confined") if b["kind"] == "EndpointSlice"])
        wait_for("the Service to lead to it", lambda: leads_to(service) == ["one"], one.log)
