"""The way to a gateway in a cluster, from outside: kubectl forwards a port of this machine to the pod that leads.

    EndpointSlice tidemark-gateway ─► pod, port, who signed its certificate
    kubectl port-forward pod/POD :PORT ─► 127.0.0.1:40123, for as long as the command runs

The Service selects nothing, so kubectl cannot forward to it; the pod that it leads to stands in the EndpointSlice.
"""

from __future__ import annotations

import json
import re
import selectors
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tidemark_cli import kubeconfig
from tidemark_cli.errors import GatewayFailed, GatewayUnknown

SERVICE = "tidemark-gateway"
NAMESPACE = "tidemark-system"
AUTHORITY = "compute.tidemark.dev/ca.crt"
TOKENS, CERTIFICATES = "grpc", "grpc-certificates"
"""Ports of the Service, by what is shown there."""
SECONDS = 30.0
_LARGEST_LINE = 4096
_FORWARDED = re.compile(r"^Forwarding from (127\.0\.0\.1:\d+) ")


@dataclass(frozen=True)
class Leader:
    """The pod that leads, and how it is known."""

    namespace: str
    pod: str
    port: int
    authority: bytes

    @property
    def host(self) -> str:
        """By which its certificate knows it."""
        return f"{SERVICE}.{self.namespace}.svc"


def leader(namespace: str, port: str) -> Leader:
    """Who leads now; raises GatewayUnknown, GatewayFailed."""
    asked = ("get", "endpointslice", SERVICE, "--namespace", namespace, "--output", "json")
    done = kubeconfig.kubectl("a gateway elsewhere (no gateway.json is beside the kubeconfig: try `make demo`)", *asked)
    where = f"EndpointSlice {namespace}/{SERVICE}"
    if done.returncode:
        raise GatewayUnknown(_unknown(namespace, where, done.stderr.strip().rpartition("\n")[2]))
    found = json.loads(done.stdout)
    endpoints: list[dict[str, Any]] = found.get("endpoints") or []
    ports = {each.get("name"): each["port"] for each in found.get("ports") or []}
    if not endpoints:
        raise GatewayFailed(f"no operator leads: {where} has no endpoint. See the pods of {namespace}")
    if port not in ports:
        raise GatewayFailed(
            f"{where} has no port {port}: the gateway takes no client certificates (the chart's "
            "gateway.clientCertificates). Give --service-account NAME"
        )
    authority = (found["metadata"].get("annotations") or {}).get(AUTHORITY, "")
    return Leader(namespace, endpoints[0]["targetRef"]["name"], ports[port], authority.encode())


def _unknown(namespace: str, where: str, said: str) -> str:
    """`said`: the last line of kubectl's, which has what it comes to."""
    if "(Forbidden)" in said:
        return (
            f"{where} may not be read: {said}. The way there takes Role tidemark-reach-gateway in {namespace}; or give "
            "--server, where the gateway has an address"
        )
    no_file = "no gateway.json is beside the kubeconfig (try `make demo`)"
    if "(NotFound)" not in said:
        return f"{no_file}, and whether there is an {where} cannot be found out: {said}"
    return (
        f"{no_file}, and there is no {where}: {said}. Give --operator-namespace, the one of the chart's release, or "
        "--server"
    )


@contextmanager
def forwarded(to: Leader) -> Iterator[str]:
    """An address on loopback that leads there; raises GatewayFailed."""
    place = ("--namespace", to.namespace, "--address", "127.0.0.1", f"pod/{to.pod}", f":{to.port}")
    try:
        process = subprocess.Popen(
            ["kubectl", "port-forward", *place],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        raise GatewayFailed("the way to the gateway needs kubectl, which is not on the PATH") from None
    with process, _ended_with(process):
        yield _address(process, to)


@contextmanager
def _ended_with(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """It ends when we are done, also where we are told to end."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        process.terminate()
        signal.signal(signal.SIGTERM, before)


def _address(process: subprocess.Popen[bytes], to: Leader) -> str:
    """What kubectl says once it listens."""
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        ready = waiting.select(SECONDS)
    line = process.stdout.readline(_LARGEST_LINE).decode(errors="replace") if ready else ""
    if (found := _FORWARDED.match(line)) is not None:
        return found[1]
    process.terminate()
    said = process.stderr.read(_LARGEST_LINE).decode(errors="replace").strip()
    raise GatewayFailed(f"kubectl forwards no port to pod {to.namespace}/{to.pod}: {said or 'it does not say why'}")
