"""The command lines of the node's servers, as pure functions, and in which order they start.

etcd, containerd, kube-apiserver ─► the API server is ready ─► all others
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tidemark_devcluster.control_plane.commands import APISERVER, CONTROLLER_MANAGER, ServerCommand, etcd
from tidemark_devcluster.control_plane.layout import ControlPlaneLayout
from tidemark_devcluster.node.binaries import NodeBinaries
from tidemark_devcluster.node.host_requirements import SYSTEM_PATH, find
from tidemark_devcluster.node.node_layout import API_PORT, INSIDE, NODE_NAME, SERVICE_SUBNET, Addresses
from tidemark_devcluster.node.settings import CONFIG

LAYOUT = ControlPlaneLayout.of(INSIDE)


@dataclass(frozen=True)
class Plan:
    """The plan of `init`, which knows nothing else of a node."""

    state: str
    number: int
    first: tuple[ServerCommand, ...]
    then: tuple[ServerCommand, ...]

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> "Plan":
        read = json.loads(text)
        first, then = (
            tuple(ServerCommand(one["name"], tuple(one["arguments"]), one["environment"]) for one in read[stage])
            for stage in ("first", "then")
        )
        return Plan(read["state"], read["number"], first, then)


def plan(state: Path, addresses: Addresses, binaries: NodeBinaries) -> Plan:
    """All servers of a node."""
    first = (etcd(binaries.plane.etcd, LAYOUT, durable=False), containerd(), apiserver(binaries, addresses))
    then = (controller_manager(binaries), scheduler(binaries), kube_proxy(binaries), kubelet(binaries, addresses))
    return Plan(str(state), addresses.number, first, then)


def kubeconfig(name: str) -> Path:
    return CONFIG / f"{name}.kubeconfig"


def containerd() -> ServerCommand:
    # it looks for runc and its shim on PATH
    return ServerCommand(
        "containerd", (find("containerd"), f"--config={CONFIG}/containerd.toml"), {"PATH": SYSTEM_PATH}
    )


def apiserver(binaries: NodeBinaries, addresses: Addresses) -> ServerCommand:
    """The API server for pods and the host, with the authorisation and admission that a node needs."""
    options = (
        "--etcd-servers=unix://etcd.sock",
        "--bind-address=0.0.0.0",
        f"--secure-port={API_PORT}",
        f"--advertise-address={addresses.node}",
        f"--cert-dir={LAYOUT.pki}",
        f"--token-auth-file={LAYOUT.tokens}",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={LAYOUT.service_account_key}",
        f"--service-account-signing-key-file={LAYOUT.service_account_key}",
        f"--service-cluster-ip-range={SERVICE_SUBNET}",
        f"--kubelet-client-certificate={INSIDE}/node-pki/client.crt",
        f"--kubelet-client-key={INSIDE}/node-pki/client.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--shutdown-delay-duration=0s",
        "--profiling=false",
    )
    return ServerCommand(APISERVER, (str(binaries.plane.kube_apiserver), *options), {"GOGC": "50"})


def controller_manager(binaries: NodeBinaries) -> ServerCommand:
    options = (
        f"--kubeconfig={kubeconfig(CONTROLLER_MANAGER)}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={LAYOUT.service_account_key}",
        f"--root-ca-file={LAYOUT.certificate}",
        # it makes this folder, elsewhere unless told
        f"--flex-volume-plugin-dir={INSIDE}/kubelet/plugins",
        "--use-service-account-credentials=true",
        "--profiling=false",
    )
    return ServerCommand(CONTROLLER_MANAGER, (str(binaries.plane.kube_controller_manager), *options), {"GOGC": "50"})


def scheduler(binaries: NodeBinaries) -> ServerCommand:
    options = (f"--kubeconfig={kubeconfig('kube-scheduler')}", "--leader-elect=false", "--secure-port=0")
    return ServerCommand("kube-scheduler", (str(binaries.kube_scheduler), *options), {"GOGC": "50"})


def kube_proxy(binaries: NodeBinaries) -> ServerCommand:
    return ServerCommand(
        "kube-proxy", (str(binaries.kube_proxy), f"--config={CONFIG}/kube-proxy.json"), {"PATH": SYSTEM_PATH}
    )


def kubelet(binaries: NodeBinaries, addresses: Addresses) -> ServerCommand:
    options = (
        f"--config={CONFIG}/kubelet.json",
        f"--kubeconfig={kubeconfig('kubelet')}",
        f"--root-dir={INSIDE}/kubelet",
        f"--cert-dir={INSIDE}/kubelet/pki",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={addresses.node}",
    )
    return ServerCommand("kubelet", (str(binaries.kubelet), *options), {"PATH": SYSTEM_PATH})
