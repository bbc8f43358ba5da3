"""The command lines of the three servers, as pure functions of the layout and the port.

Every server runs in the state folder, so the path of etcd's socket is short wherever the folder is: the path of a
unix socket is limited to 107 bytes.
"""

from dataclasses import dataclass, field
from pathlib import Path

from tidemark_devcluster.control_plane.layout import ControlPlaneLayout

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
# in the order in which they start; they end in the reverse order
SERVERS = (ETCD, APISERVER, CONTROLLER_MANAGER)

ETCD_SOCKET = "unix://etcd.sock"
PEER_SOCKET = "unix://peer.sock"
# etcd requires an address for peers; there is one member, so nothing connects to it
NOWHERE = "http://localhost:0"
# the controllers that need no kubelet and that Tidemark's objects rely on: owner references, deletion of namespaces,
# the default service accounts, cluster roles made of others, and the pods of replicas (made, and never run)
CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",
    "statefulset-controller",
)


@dataclass(frozen=True)
class ServerCommand:
    """One server: its name, its command line, and additions to its environment."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def etcd(binary: Path, layout: ControlPlaneLayout, durable: bool) -> ServerCommand:
    """One member, which listens on sockets inside the (private) state folder only."""
    options = [
        "--name=tidemark",
        f"--data-dir={layout.root / 'etcd'}",
        f"--listen-client-urls={ETCD_SOCKET}",
        f"--advertise-client-urls={NOWHERE}",
        f"--listen-peer-urls={PEER_SOCKET}",
        f"--initial-advertise-peer-urls={NOWHERE}",
        f"--initial-cluster=tidemark={NOWHERE}",
        "--quota-backend-bytes=1073741824",
        # a week of small writes: what etcd keeps of them in memory and in files stays below what they take in an hour
        "--snapshot-count=1000",
        "--snapshot-catchup-entries=100",
        "--max-wals=2",
        "--max-snapshots=2",
        "--log-level=warn",
    ]
    if not durable:
        options.append("--unsafe-no-fsync")
    return ServerCommand(ETCD, (str(binary), *options), {"GOGC": "50"})


def apiserver(binary: Path, layout: ControlPlaneLayout, port: int) -> ServerCommand:
    """The API server: it listens on loopback, with TLS, token authentication and RBAC."""
    options = (
        f"--etcd-servers={ETCD_SOCKET}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={layout.pki}",
        f"--token-auth-file={layout.tokens}",
        "--anonymous-auth=false",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.service_account_key}",
        f"--service-account-signing-key-file={layout.service_account_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--shutdown-delay-duration=0s",
        "--profiling=false",
    )
    # a quarter less memory for a little more work; the limit makes the collector work harder, it refuses nothing
    return ServerCommand(APISERVER, (str(binary), *options), {"GOGC": "50", "GOMEMLIMIT": "768MiB"})


def controller_manager(binary: Path, layout: ControlPlaneLayout) -> ServerCommand:
    """The controllers that work without nodes; no port of its own."""
    options = (
        f"--kubeconfig={layout.kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={layout.service_account_key}",
        "--use-service-account-credentials=false",
        f"--controllers={','.join(CONTROLLERS)}",
        "--profiling=false",
    )
    return ServerCommand(CONTROLLER_MANAGER, (str(binary), *options), {"GOGC": "50"})
