"""`kubectl tidemark explain`: the plan of a Dataflow, or of a SELECT that is not applied yet."""

from __future__ import annotations

from typing import TextIO

from tidemark_cli.gateway import Gateway, connected
from tidemark_protocol.pb.gateway_pb2 import ExplainRequest

_TIMEOUT_S = 30


def run(gateway: Gateway, namespace: str, subject: str, out: TextIO) -> None:
    """Asks, and prints the tree. Raises GatewayFailed."""
    request = ExplainRequest(namespace=namespace, subject=subject)
    with connected(gateway) as stub:
        reply = stub.Explain(request, metadata=gateway.metadata, timeout=_TIMEOUT_S)
    out.write(reply.text if reply.text.endswith("\n") else reply.text + "\n")
