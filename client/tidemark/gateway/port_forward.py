"""The way from outside the cluster to the gateway: kubectl forwards a local port to the leading operator's pod.

    EndpointSlice tidemark-gateway ─► pod, port, certificate authority
    kubectl port-forward pod/POD :PORT ─► 127.0.0.1:40123, for as long as the command runs

kubectl cannot forward to the Service, which has no selector. The EndpointSlice names the pod of the leader.
"""

from __future__ import annotations

import json
import re
import selectors
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidemark.errors import GatewayFailed, GatewayUnknown
from tidemark.gateway.kubectl import TIMEOUT_SECONDS, Kubectl

SERVICE = "tidemark-gateway"
AUTHORITY_ANNOTATION = "compute.tidemark.dev/ca.crt"
TOKEN_PORT, CERTIFICATE_PORT = "grpc", "grpc-certificates"
"""The Service's ports: one for callers with a token, one for callers with a client certificate."""
_MAX_LINE_BYTES = 4096
_FORWARDING = re.compile(r"^Forwarding from (127\.0\.0\.1:\d+) ")


@dataclass(frozen=True)
class Leader:
    """The pod of the leading operator."""

    kubectl: Kubectl
    namespace: str
    pod: str
    port: int
    authority: bytes
    """The certificates, as PEM, of the authority that signed the gateway's certificate."""

    @property
    def host(self) -> str:
        """The name in the gateway's certificate."""
        return f"{SERVICE}.{self.namespace}.svc"


def find_leader(kubectl: Kubectl, namespace: str, port: str) -> Leader:
    """Reads the leader's pod from the EndpointSlice; `port` is one of the Service's.

    Raises:
        GatewayUnknown: the EndpointSlice does not exist or cannot be read.
        GatewayFailed: no operator leads, or its gateway does not have the port.
    """
    purpose = "a gateway elsewhere (no gateway.json is beside the kubeconfig: try `make demo`)"
    done = kubectl.run(purpose, "get", "endpointslice", SERVICE, "--namespace", namespace, "--output", "json")
    name = f"EndpointSlice {namespace}/{SERVICE}"
    if done.returncode:
        raise GatewayUnknown(_unknown(namespace, name, done.stderr.strip().rpartition("\n")[2]))
    found = json.loads(done.stdout)
    endpoints: list[dict[str, Any]] = found.get("endpoints") or []
    ports = {each.get("name"): each["port"] for each in found.get("ports") or []}
    if not endpoints:
        raise GatewayFailed(f"no operator leads: {name} has no endpoint. See the pods of {namespace}")
    if port not in ports:
        raise GatewayFailed(
            f"{name} has no port {port}: the gateway takes no client certificates (the chart's "
            "gateway.clientCertificates). Give --service-account NAME"
        )
    authority = (found["metadata"].get("annotations") or {}).get(AUTHORITY_ANNOTATION, "")
    return Leader(kubectl, namespace, endpoints[0]["targetRef"]["name"], ports[port], authority.encode())


def _unknown(namespace: str, name: str, refusal: str) -> str:
    """`refusal`: the last line of kubectl's errors, which holds the reason."""
    if "(Forbidden)" in refusal:
        return (
            f"{name} may not be read: {refusal}. This takes Role tidemark-reach-gateway in {namespace}; or give "
            "--server, where the gateway has an address"
        )
    no_file = "no gateway.json is beside the kubeconfig (try `make demo`)"
    if "(NotFound)" not in refusal:
        return f"{no_file}, and whether there is an {name} cannot be found out: {refusal}"
    return (
        f"{no_file}, and there is no {name}: {refusal}. Give --operator-namespace, the one of the chart's release, or "
        "--server"
    )


@contextmanager
def forwarded(leader: Leader) -> Iterator[str]:
    """A loopback address, HOST:PORT, that kubectl forwards to the leader. kubectl ends with the block: a program that
    ends by a signal must leave the block first, as by SystemExit. Signals are the program's own.

    Raises:
        GatewayFailed: kubectl is not on the PATH, or forwards no port.
    """
    target = ("--namespace", leader.namespace, "--address", "127.0.0.1", f"pod/{leader.pod}", f":{leader.port}")
    try:
        process = subprocess.Popen(
            leader.kubectl.command("port-forward", *target),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        raise GatewayFailed("the way to the gateway needs kubectl, which is not on the PATH") from None
    with process:
        try:
            yield _address(process, leader)
        finally:
            process.terminate()


def _address(process: subprocess.Popen[bytes], leader: Leader) -> str:
    """Waits for the line in which kubectl names the local port."""
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(TIMEOUT_SECONDS)
    line = process.stdout.readline(_MAX_LINE_BYTES).decode(errors="replace") if ready else ""
    if (found := _FORWARDING.match(line)) is not None:
        return found[1]
    process.terminate()
    reason = process.stderr.read(_MAX_LINE_BYTES).decode(errors="replace").strip()
    raise GatewayFailed(
        f"kubectl forwards no port to pod {leader.namespace}/{leader.pod}: {reason or 'it gives no reason'}"
    )
