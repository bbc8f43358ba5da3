"""`kubectl tidemark frontiers`: how far every source table and export is, live from the controller."""

from __future__ import annotations

import json
from typing import Any, TextIO

from google.protobuf.json_format import MessageToDict

from tidemark_cli import times
from tidemark_cli.gateway import Gateway, connected
from tidemark_cli.table import Table
from tidemark_protocol.pb.gateway_pb2 import CollectionFrontiers, FrontiersReply, FrontiersRequest

_TIMEOUT_S = 30


def run(gateway: Gateway, namespace: str, all_namespaces: bool, output: str, out: TextIO) -> None:
    """Asks, and prints the answer. Raises GatewayFailed."""
    request = FrontiersRequest(namespace=namespace, all_namespaces=all_namespaces)
    with connected(gateway) as stub:
        reply = stub.Frontiers(request, metadata=gateway.metadata, timeout=_TIMEOUT_S)
    if output == "json":
        print(json.dumps(MessageToDict(reply, preserving_proto_field_name=True), indent=2), file=out)
    elif reply.collections:
        _print_table(reply, all_namespaces, out)
    else:
        print("No collections found" + ("." if all_namespaces else f" in namespace {namespace}."), file=out)


def _print_table(reply: FrontiersReply, with_namespace: bool, out: TextIO) -> None:
    names = ["NAME", "KIND", "READABLE FROM", "COMPLETE BEFORE", "LAG", "HYDRATED", "REPLICAS"]
    collections = sorted(reply.collections, key=lambda c: (c.namespace, c.name))
    rows = [_row(c, reply.now) for c in collections]
    if with_namespace:
        names = ["NAMESPACE", *names]
        rows = [[c.namespace, *row] for c, row in zip(collections, rows, strict=True)]
    print(*Table(names, [False] * len(names)).block(rows), sep="\n", file=out)


def _row(c: CollectionFrontiers, now: int) -> list[str]:
    read, write = _optional(c, "read"), _optional(c, "write")
    return [
        c.name,
        c.kind,
        "<unknown>" if read is None else times.show(read),
        "<unknown>" if write is None else times.show(write),
        times.show_lag(now, write),
        _hydrated(c),
        ",".join(r.replica for r in c.replicas) or "<none>",
    ]


def _hydrated(c: CollectionFrontiers) -> str:
    """Whether it is, or how far."""
    percent = _optional(c, "hydrated_percent")
    return "True" if c.hydrated else "False" if percent is None else f"{percent}%"


def _optional(message: Any, field: str) -> int | None:
    return getattr(message, field) if message.HasField(field) else None
