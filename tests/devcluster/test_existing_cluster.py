"""The clusters of the user that the demo takes, and those that it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemark_devcluster.demo import existing_cluster
from tidemark_devcluster.demo.existing_cluster import ClusterUnusable, KubeContext, chosen_context
from tidemark_devcluster.demo.home import DemoHome

KUBECTL = """#!/bin/sh
case "$*" in
*context=missing*) echo "error: context was not found" >&2; exit 1 ;;
*) cat "$KUBECONFIG" ;;
esac
"""


@pytest.mark.parametrize(
    ("name", "server", "local"),
    [
        ("kind-a", "https://127.0.0.1:41231", True),
        ("k3d-a", "https://0.0.0.0:6550", True),
        ("minikube", "https://192.168.49.2:8443", True),
        ("docker-desktop", "https://kubernetes.docker.internal:6443", True),
        ("tunnel", "https://localhost:6443", True),
        ("prod", "https://prod.example.com", False),
        ("prod-kind-a", "https://10.0.0.1:6443", False),
    ],
)
def test_a_cluster_is_taken_unasked_only_on_this_machine(name: str, server: str, local: bool) -> None:
    assert KubeContext(name, server).is_local is local


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that shows the kubeconfig of the environment."""
    view = {"current-context": "kind-a", "clusters": [{"cluster": {"server": "https://127.0.0.1:1"}}]}
    (tmp_path / "theirs").write_text(json.dumps(view))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "theirs"))
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    return tmp_path / "kubectl"


def test_the_context_comes_from_the_environment(kubectl: Path, tmp_path: Path) -> None:
    """KUBECONFIG without kubectl, no KUBECONFIG, and the demo's own kubeconfig name no cluster."""
    home = DemoHome(tmp_path / "home")
    theirs = {"KUBECONFIG": str(tmp_path / "theirs")}
    assert chosen_context(theirs, kubectl, home) == KubeContext("kind-a", "https://127.0.0.1:1")
    assert chosen_context(theirs, None, home) is None
    assert chosen_context({}, kubectl, home) is None
    assert chosen_context({"KUBECONFIG": str(home.kubeconfig)}, kubectl, home) is None


def test_a_context_that_is_named_must_be_there(kubectl: Path, tmp_path: Path) -> None:
    home = DemoHome(tmp_path / "home")
    with pytest.raises(ClusterUnusable, match="no such context"):
        chosen_context({"CONTEXT": "missing"}, kubectl, home)
    with pytest.raises(ClusterUnusable, match="PATH has no kubectl"):
        chosen_context({"CONTEXT": "kind-a"}, None, home)


def test_a_folder_runs_on_one_cluster(tmp_path: Path) -> None:
    """A demo with a control plane of its own does not move to another cluster."""
    home = DemoHome(tmp_path / "home")
    home.make()
    home.plane().layout.make()
    home.plane().layout.lock.touch()
    with pytest.raises(ClusterUnusable, match="a control plane of its own"):
        existing_cluster.adopt(KubeContext("kind-a", "https://127.0.0.1:1"), tmp_path / "kubectl", home)
    assert not home.existing_cluster.exists()


def test_kubectl_of_the_demo_itself_is_not_linked_to_itself(tmp_path: Path) -> None:
    """The demo's last lines have people put its bin/ first on PATH."""
    home = DemoHome(tmp_path / "home")
    home.make()
    home.link_kubectl(tmp_path / "kubectl")
    home.link_kubectl(home.bin / "kubectl")
    assert (home.bin / "kubectl").readlink() == tmp_path / "kubectl"
