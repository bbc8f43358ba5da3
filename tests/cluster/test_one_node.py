"""The node itself: pods run on it and find each other."""

from __future__ import annotations

import json

import pytest

from tests.cluster import pods
from tidemark_devcluster.errors import KubectlFailed
from tidemark_devcluster.images.build import Image
from tidemark_devcluster.node.cluster import OneNode

RESOLVE = "import socket, sys; print(socket.getaddrinfo(sys.argv[1], 443, proto=socket.IPPROTO_TCP)[0][4][0])"

DENIED = """
import socket, sys
try:
    print(socket.getaddrinfo(sys.argv[1], 443))
except socket.gaierror:
    print("none")
"""


def python(image: Image, name: str, *arguments: str) -> dict[str, object]:
    return pods.pod(name, image.name, [], command=["python", *arguments])


def test_the_node_is_ready_and_knows_its_servers(bare_node: OneNode) -> None:
    """Each server is a process of the host's, too, which a test may harm."""
    status = bare_node.status()
    assert status.ready
    assert {"etcd", "kube-apiserver", "kubelet", "containerd", "kube-proxy"} <= set(status.pids)


def test_the_dns_of_the_cluster_answers(node: OneNode, namespace: str, images: dict[str, Image]) -> None:
    """A service by its address, and no name that the cluster does not have."""
    found = python(images["operator"], "found", "-c", RESOLVE, "kubernetes.default.svc.cluster.local")
    assert pods.run(node, namespace, found).strip() == "10.96.0.1"
    unknown = python(images["operator"], "unknown", "-c", DENIED, "a.example")
    assert pods.run(node, namespace, unknown).strip() == "none"


def test_a_privileged_pod_is_refused(node: OneNode, namespace: str, images: dict[str, Image]) -> None:
    """The namespaces of these tests are of the strictest kind."""
    made = pods.pod("rooted", images["operator"].name, ["--help"])
    made["spec"]["securityContext"] = {"runAsUser": 0}
    with pytest.raises(KubectlFailed, match="restricted"):
        pods.apply(node, namespace, made)


def test_a_stranger_is_forbidden(bare_node: OneNode) -> None:
    """The second kubeconfig authenticates, and authorises nothing."""
    review = json.dumps(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}},
        }
    )
    # to check it first, kubectl would ask for more than an outsider may
    asked = ("create", "--filename=-", "--output=json", "--validate=false")
    output = bare_node.kubectl(*asked, stdin=review)
    assert json.loads(output)["status"]["allowed"]
    outsider = bare_node.kubectl(*asked, stdin=review, kubeconfig=bare_node.layout.outsider_kubeconfig)
    assert not json.loads(outsider)["status"]["allowed"]
