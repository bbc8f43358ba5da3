"""Credentials of a node: tokens for the API server, and the API server's client certificate for the kubelet.

Every server of the node has a token and a kubeconfig of its own, and with it the rights that Kubernetes' own roles
give it. kubelet asks the API server who its callers are; the API server itself shows kubelet a certificate.
"""

import csv
import io
import json
import secrets
import subprocess
from dataclasses import dataclass

from tidemark_devcluster.control_plane.credentials import Tokens
from tidemark_devcluster.errors import StartFailed
from tidemark_devcluster.node.host_requirements import find
from tidemark_devcluster.node.node_layout import INSIDE, NODE_NAME, Place

KUBELET_USER = f"system:node:{NODE_NAME}"
# server ─► user and group, as Kubernetes' own roles name them
USERS = {
    "kubelet": (KUBELET_USER, "system:nodes"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
}
CLIENT_SUBJECT = "/O=system:masters/CN=kube-apiserver-kubelet-client"
CERTIFICATE_DAYS = "3650"


@dataclass(frozen=True)
class NodeTokens:
    """The tokens of people, and those of the node's servers by name."""

    people: Tokens
    servers: dict[str, str]

    @staticmethod
    def random() -> "NodeTokens":
        return NodeTokens(Tokens.random(), {name: secrets.token_urlsafe(32) for name in USERS})

    def as_csv(self) -> str:
        """The format of `--token-auth-file`; what reads the tokens of people alone reads this too."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for name, token in self.servers.items():
            user, group = USERS[name]
            writer.writerow([token, user, user, *([group] if group else [])])
        return self.people.as_csv() + text.getvalue()


def server_kubeconfig(server: str, token: str) -> str:
    """The kubeconfig of a server of the node. It names the file of the authority, which the API server makes at its
    first start."""
    authority = str(INSIDE / "pki" / "apiserver.crt")
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tidemark", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "server", "user": {"token": token}}],
        "contexts": [{"name": "tidemark", "context": {"cluster": "tidemark", "user": "server"}}],
        "current-context": "tidemark",
    }
    return json.dumps(document, indent=2) + "\n"


def make_client_certificate(place: Place) -> None:
    """A certificate that is its own authority: kubelet trusts this one alone."""
    folder = place.root / "node-pki"
    command = [find("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", CLIENT_SUBJECT, "-days", CERTIFICATE_DAYS, "-addext", "extendedKeyUsage=clientAuth"]
    command += ["-keyout", str(folder / "client.key"), "-out", str(folder / "client.crt")]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise StartFailed(f"openssl could not make the API server's certificate: {answer.stderr.strip()}")
