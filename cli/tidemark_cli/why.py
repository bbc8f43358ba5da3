"""`kubectl tidemark why NAME`: what holds a frontier back, as a tree.

    delays.by-carrier (index) complete before 2026-01-31T12:00:01.000Z, 1.2s behind: has everything that ... has
    * flights.arrivals (table) complete before 2026-01-31T12:00:01.000Z, 1.2s behind: DataSource flights: on replica r1
      replica r1 complete before 2026-01-31T12:00:01.000Z, 1.2s behind: has taken in all that its inputs have

A star marks the way to the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

from google.protobuf.json_format import MessageToDict

from tidemark_cli import times
from tidemark_cli.gateway import Gateway, connected
from tidemark_cli.table import printable
from tidemark_protocol.pb.gateway_pb2 import Cause, WhyRequest

_TIMEOUT_S = 30


def run(gateway: Gateway, namespace: str, name: str, output: str, out: TextIO) -> None:
    """Asks, and prints the tree. Raises GatewayFailed."""
    request = WhyRequest(namespace=namespace, name=name)
    with connected(gateway) as stub:
        reply = stub.Why(request, metadata=gateway.metadata, timeout=_TIMEOUT_S)
    if output == "json":
        print(json.dumps(MessageToDict(reply, preserving_proto_field_name=True), indent=2), file=out)
        return
    for cause in reply.causes:
        for line in _lines(cause, reply.now, 0):
            print(line, file=out)


def _lines(cause: Cause, now: int, depth: int) -> Iterator[str]:
    mark = "* " if cause.holds else "  "
    indent = "  " * (depth - 1) + mark if depth else ""
    kind = "" if cause.kind == "replica" else f" ({cause.kind})"
    yield f"{indent}{printable(cause.subject)}{kind} {_far(cause, now)}: {printable(cause.says)}"
    for below in cause.because:
        yield from _lines(below, now, depth + 1)


def _far(cause: Any, now: int) -> str:
    if not cause.HasField("write"):
        return "at no known time"
    if cause.write == times.EMPTY:
        return "finished"
    return f"complete before {times.show(cause.write)}, {times.show_lag(now, cause.write)} behind"
