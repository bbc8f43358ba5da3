"""The configuration files of the node's servers, as pure functions. All paths are those inside."""

import json
from typing import Any

from tidemark_devcluster.node.host_requirements import CNI_FOLDER
from tidemark_devcluster.node.node_layout import (
    CLUSTER_DOMAIN,
    CONTAINERD_SOCKET,
    DNS_ADDRESS,
    INSIDE,
    NODE_NAME,
    POD_SUBNET,
    Addresses,
)

PAUSE_IMAGE = "tidemark.local/pause:1"
COREDNS_IMAGE = "tidemark.local/coredns:1"
CONFIG = INSIDE / "config"


def containerd() -> str:
    """No AppArmor and no lowered OOM scores: inside a container neither may be had."""
    return f"""version = 2
root = "{INSIDE}/containerd"
state = "{CONTAINERD_SOCKET.parent}"
oom_score = 0
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{INSIDE}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_FOLDER}"
    conf_dir = "{CONFIG}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def cni() -> str:
    """A pair of interfaces for each pod, and routes between them: one node needs no more."""
    ranges = [[{"subnet": POD_SUBNET}]]
    addresses = {"type": "host-local", "dataDir": "/run/cni", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    pairs = {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return _json({"cniVersion": "0.4.0", "name": "tidemark", "plugins": [pairs, ports]})


def kubelet(addresses: Addresses, cgroup: str) -> str:
    """Evicts late: a machine for development is fuller than a server."""
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroup}",
            "failSwapOn": False,
            "failCgroupV1": False,
            "oomScoreAdj": 0,
            "resolvConf": f"{CONFIG}/resolv.conf",
            "clusterDNS": [DNS_ADDRESS],
            "clusterDomain": CLUSTER_DOMAIN,
            "address": addresses.node,
            "healthzBindAddress": "127.0.0.1",
            "volumePluginDir": f"{INSIDE}/kubelet/plugins",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{INSIDE}/node-pki/client.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "nodeStatusUpdateFrequency": "5s",
            "syncFrequency": "10s",
            "imageMinimumGCAge": "24h",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }
    )


def kube_proxy() -> str:
    """Changes nothing of the host's: its limits of connections are left as they are."""
    untouched = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return _json(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": POD_SUBNET,
            "clientConnection": {"kubeconfig": f"{CONFIG}/kube-proxy.kubeconfig"},
            "hostnameOverride": NODE_NAME,
            "oomScoreAdj": 0,
            "conntrack": untouched,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
        }
    )


def resolv_conf() -> str:
    """The file for pods that ask for the node's DNS: there is none outside the cluster."""
    return f"nameserver {DNS_ADDRESS}\n"


def files(addresses: Addresses, cgroup: str) -> dict[str, str]:
    """Path below `config/` ─► content."""
    return {
        "containerd.toml": containerd(),
        "cni/tidemark.conflist": cni(),
        "kubelet.json": kubelet(addresses, cgroup),
        "kube-proxy.json": kube_proxy(),
        "resolv.conf": resolv_conf(),
    }


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
