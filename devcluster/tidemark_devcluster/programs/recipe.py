"""The programs of the cluster, their Go modules, and the compiler flags.

    devcluster/kubernetes/go.mod ──► kube-apiserver, kube-controller-manager, kubectl
    devcluster/etcd/go.mod       ──► etcd
    devcluster/helm/go.mod       ──► helm, no part of the control plane: built when asked for
    devcluster/toxiproxy/go.mod  ──► toxiproxy, for tests alone: built when asked for
    devcluster/versitygw/go.mod  ──► versitygw, an S3 server over a folder: the same
    devcluster/node/go.mod       ──► kubelet, kube-scheduler, kube-proxy: for the one-node cluster (node/)
    devcluster/coredns/          ──► coredns, with the few plugins that it needs: the same
    devcluster/pause/            ──► pause, which holds a pod's namespaces open: the same
    devcluster/monitoring/go.mod ──► kinds of the Prometheus operator, for tests alone: files, nothing is compiled

All are compiled with the same flags: Go's build cache is keyed by them, and the three Kubernetes programs
share nearly everything. The versions stand in the go.mod files alone.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.errors import DevClusterError

SOURCE = Path(__file__).resolve().parents[2]
KUBERNETES = "kubernetes"
ETCD = "etcd"
HELM = "helm"
TOXIPROXY = "toxiproxy"
VERSITYGW = "versitygw"
NODE = "node"
COREDNS = "coredns"
PAUSE = "pause"
MONITORING = "monitoring"
GO_FLAGS = "-mod=readonly -trimpath -buildvcs=false -modcacherw"


@dataclass(frozen=True)
class Program:
    """One executable: its name, the folder of its go.mod, and its main package."""

    name: str
    module: str
    package: str


@dataclass(frozen=True)
class Excerpt:
    """Files of another's Go module, as they are: the folder of the go.mod that requires it, its path, and which."""

    module: str
    path: str
    files: tuple[str, ...]


ETCD_SERVER = Program("etcd", ETCD, "go.etcd.io/etcd/server/v3")
KUBE_APISERVER = Program("kube-apiserver", KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver")
KUBE_CONTROLLER_MANAGER = Program(
    "kube-controller-manager", KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager"
)
KUBECTL = Program("kubectl", KUBERNETES, "k8s.io/kubernetes/cmd/kubectl")
HELM_CLI = Program("helm", HELM, "helm.sh/helm/v3/cmd/helm")
TOXIPROXY_SERVER = Program("toxiproxy", TOXIPROXY, "github.com/Shopify/toxiproxy/v2/cmd/server")
VERSITYGW_SERVER = Program("versitygw", VERSITYGW, "github.com/versity/versitygw/cmd/versitygw")
KUBELET = Program("kubelet", NODE, "k8s.io/kubernetes/cmd/kubelet")
KUBE_SCHEDULER = Program("kube-scheduler", NODE, "k8s.io/kubernetes/cmd/kube-scheduler")
KUBE_PROXY = Program("kube-proxy", NODE, "k8s.io/kubernetes/cmd/kube-proxy")
COREDNS_SERVER = Program("coredns", COREDNS, ".")
PAUSE_PROGRAM = Program("pause", PAUSE, ".")
MONITORING_KINDS = Excerpt(
    MONITORING,
    "github.com/prometheus-operator/prometheus-operator",
    tuple(
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
        for kind in ("podmonitors", "prometheusrules")
    ),
)

# the largest first: it fills the build cache for the two after it
PROGRAMS = (KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBECTL, ETCD_SERVER)
# enough for a first answer: without kube-controller-manager nothing that is deleted takes along what it owns
API_SERVER_PROGRAMS = (KUBE_APISERVER, KUBECTL, ETCD_SERVER)
NODE_PROGRAMS = (KUBELET, KUBE_SCHEDULER, KUBE_PROXY)


def module_folder(module: str) -> Path:
    """The folder of a go.mod. It is a part of the checkout, not of an installed wheel."""
    folder = SOURCE / module
    if not (folder / "go.mod").is_file():
        raise DevClusterError(
            f"{folder} has no go.mod: the control plane is built from a checkout; "
            "install Tidemark from its checkout with `pip install -e .`"
        )
    return folder


def _go_mod(module: str) -> str:
    return (module_folder(module) / "go.mod").read_text(encoding="utf-8")


def kubernetes_version() -> str:
    """The version of Kubernetes that the go.mod requires, such as `v1.34.4`."""
    found = re.search(r"k8s\.io/kubernetes (v\d+\.\d+\.\d+)", _go_mod(KUBERNETES))
    if found is None:
        raise DevClusterError(f"{module_folder(KUBERNETES)}/go.mod requires no k8s.io/kubernetes")
    return found.group(1)


def linker_flags() -> str:
    """No symbol tables (a third of the size), and the version that `kubectl version` reports."""
    return f"-s -w -X k8s.io/component-base/version.gitVersion={kubernetes_version()}"


def modules(programs: tuple[Program | Excerpt, ...]) -> tuple[str, ...]:
    """The folders whose go.mod files say what these programs are made of, each once."""
    return tuple(dict.fromkeys(program.module for program in programs))


def minimum_go(programs: tuple[Program | Excerpt, ...] = PROGRAMS) -> tuple[int, int]:
    """The oldest Go that the go.mod files of these programs admit."""
    versions: list[tuple[int, int]] = []
    for module in modules(programs):
        found = re.search(r"^go (\d+)\.(\d+)", _go_mod(module), re.MULTILINE)
        if found is None:
            raise DevClusterError(f"{module_folder(module)}/go.mod names no Go version")
        versions.append((int(found.group(1)), int(found.group(2))))
    return max(versions)


def digest(programs: tuple[Program | Excerpt, ...] = PROGRAMS) -> str:
    """Names one set of binaries: the same digest, the same sources and flags, hence the same programs."""
    seen = hashlib.sha256()
    for module in modules(programs):
        folder = module_folder(module)
        for name in ("go.mod", "go.sum", *sorted(source.name for source in folder.glob("*.go"))):
            content = (folder / name).read_bytes()
            seen.update(f"{module}/{name} {len(content)}\n".encode() + content)
    seen.update(f"{GO_FLAGS}\n{linker_flags()}\n{programs}\n".encode())
    return seen.hexdigest()[:16]
