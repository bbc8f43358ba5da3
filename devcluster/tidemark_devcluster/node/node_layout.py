"""The layout of a node: its state folder, which the node sees as `/run/tidemark`, and its addresses.

    lock, tokens.csv, sa.key, pki/, etcd/, log/, pids/, kubeconfig, bin/   as for a control plane
    (control_plane/layout.py)
    config/       configuration files and kubeconfigs of the node's servers
    containerd/   images and the files of containers
    kubelet/      the volumes of pods
    var/          what the node writes below /var
    plan.json     what `init` starts

Names that the kernel knows (cgroups, the veth's hardware address) are made of the state folder's path, so that a
later command finds what a dead node left, and never takes another node's.
"""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.control_plane.layout import FOLDERS as PLANE_FOLDERS
from tidemark_devcluster.control_plane.layout import MADE_BY_OTHERS, ControlPlaneLayout

INSIDE = Path("/run/tidemark")
CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
INIT = "init"
FOLDERS = ("config", "containerd", "kubelet", "var", "images", "node-pki", "mount")
NODE_NAME = "tidemark"
API_PORT = 6443
POD_SUBNET = "10.244.0.0/24"
SERVICE_SUBNET = "10.96.0.0/16"
DNS_ADDRESS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"


@dataclass(frozen=True)
class Addresses:
    """The two ends of the veth: a network of four addresses for each node of this machine."""

    number: int

    @property
    def link(self) -> str:
        return f"tidemark{self.number}"

    @property
    def host(self) -> str:
        return f"10.213.{self.number}.1"

    @property
    def node(self) -> str:
        return f"10.213.{self.number}.2"

    @property
    def server(self) -> str:
        return f"https://{self.node}:{API_PORT}"


@dataclass(frozen=True)
class Place:
    """One node's state folder."""

    layout: ControlPlaneLayout

    @property
    def root(self) -> Path:
        return self.layout.root

    @property
    def _digest(self) -> bytes:
        return hashlib.sha256(str(self.root).encode()).digest()

    @property
    def cgroup(self) -> str:
        return f"tidemark-{self._digest.hex()[:12]}"

    @property
    def hardware_address(self) -> str:
        """The MAC address of the veth's end on the host: locally administered, one per node."""
        return ":".join(f"{byte:02x}" for byte in (0x02, *self._digest[:5]))

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    def make(self) -> None:
        self.layout.make()
        for name in FOLDERS:
            (self.root / name).mkdir(mode=0o700, exist_ok=True)

    def clear(self) -> None:
        """Remove what a node put here, but not the folder; nothing of it may be running."""
        for name in FOLDERS + PLANE_FOLDERS + MADE_BY_OTHERS:
            shutil.rmtree(self.root / name, ignore_errors=True)
        for path in (self.plan, self.layout.tokens, self.layout.service_account_key):
            path.unlink(missing_ok=True)
