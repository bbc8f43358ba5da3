"""A cluster of the user's, in place of the demo's own control plane: `KUBECONFIG=... make demo`.

    KUBECONFIG ──► its context ──► on this machine, or named by CONTEXT ──► a copy of the context in the demo's folder
                                   else ──► not used: the demo starts a control plane of its own

Many people export KUBECONFIG for a cluster that matters. So a context is used without being named only if its server
is on this machine (loopback, or a local cluster's name: kind, k3d, minikube ...). The copy holds one context,
flattened, with mode 0600; the operator and kubectl use nothing else of the user's.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tidemark_devcluster.control_plane.control_plane import apply_kinds
from tidemark_devcluster.control_plane.kubectl import run_kubectl
from tidemark_devcluster.control_plane.layout import write_private
from tidemark_devcluster.demo.home import DemoHome
from tidemark_devcluster.errors import DevClusterError, KubectlFailed

LOCAL_HOSTS = frozenset(
    {"localhost", "127.0.0.1", "::1", "0.0.0.0", "host.docker.internal", "kubernetes.docker.internal"}
)
LOCAL_NAMES = ("kind-", "k3d-", "minikube", "docker-desktop", "rancher-desktop", "colima", "orbstack", "microk8s")


class ClusterUnusable(DevClusterError):
    """The cluster that the user names cannot be used."""


@dataclass(frozen=True)
class KubeContext:
    """One context of a kubeconfig: its name, and the URL of its API server."""

    name: str
    server: str

    @property
    def is_local(self) -> bool:
        """Whether the API server is on this machine, as far as its address and its name tell."""
        host = urlsplit(self.server).hostname or ""
        return host in LOCAL_HOSTS or self.name.startswith(LOCAL_NAMES)


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster of the user, through the demo's copy of its kubeconfig."""

    kubectl_program: Path
    kubeconfig: Path

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl against the cluster and return what it prints. Raises KubectlFailed."""
        return run_kubectl([str(self.kubectl_program), f"--kubeconfig={self.kubeconfig}"], arguments, stdin)

    def serve(self, kinds: Path) -> None:
        """Apply the CustomResourceDefinitions of a file or folder; each of them is served on return."""
        apply_kinds(self.kubectl, kinds)


def chosen_context(environ: Mapping[str, str], kubectl: Path | None, home: DemoHome) -> KubeContext | None:
    """The context that the environment names: `CONTEXT`, else the current one of `KUBECONFIG`; None without both.

    The demo's own kubeconfig, which its last lines have people export, names no cluster of theirs.
    Raises ClusterUnusable if a context is named and cannot be read.
    """
    named, kubeconfig = environ.get("CONTEXT", ""), environ.get("KUBECONFIG", "")
    if not named and (not kubeconfig or kubectl is None or Path(kubeconfig).absolute() == home.kubeconfig):
        return None
    if kubectl is None:
        raise ClusterUnusable(f"CONTEXT={named} names a cluster, and PATH has no kubectl: install it")
    options = [f"--context={named}"] if named else []
    try:
        view = json.loads(run_kubectl([str(kubectl)], ("config", "view", "--minify", "-o", "json", *options)))
    except KubectlFailed as error:
        raise ClusterUnusable(f"the kubeconfig has no such context: {error}") from error
    clusters = view.get("clusters") or []
    if not clusters:
        return None
    return KubeContext(view.get("current-context", named), clusters[0]["cluster"].get("server", ""))


def recorded(home: DemoHome) -> KubeContext | None:
    """The context that an earlier `up` of this folder has chosen."""
    if not home.existing_cluster.exists():
        return None
    return KubeContext(**json.loads(home.existing_cluster.read_text(encoding="utf-8")))


def adopt(context: KubeContext, kubectl: Path, home: DemoHome) -> ExistingCluster:
    """Copy the context to the demo's kubeconfig (mode 0600), ask the API server for an answer, and record the choice.

    Raises ClusterUnusable if the folder's demo runs elsewhere, or if the API server does not answer.
    """
    before = recorded(home)
    if before not in (None, context) or (before is None and home.plane().layout.lock.exists()):
        where = f"context {before.name}" if before else "a control plane of its own"
        raise ClusterUnusable(f"the demo in {home.root} runs on {where}: end it with `make demo-down DELETE=1` first")
    words = ("config", "view", "--minify", "--flatten", "--raw", f"--context={context.name}")
    write_private(home.kubeconfig, run_kubectl([str(kubectl)], words))
    cluster = ExistingCluster(kubectl, home.kubeconfig)
    try:
        cluster.kubectl("get", "--raw", "/readyz", "--request-timeout=10s")
    except KubectlFailed as error:
        raise ClusterUnusable(f"the API server of context {context.name} does not answer: {error}") from error
    write_private(home.existing_cluster, json.dumps(asdict(context)))
    return cluster


def find_kubectl(environ: Mapping[str, str]) -> Path | None:
    """kubectl of the user's PATH."""
    found = shutil.which("kubectl", path=environ.get("PATH"))
    return Path(found) if found else None
