"""`kubectl tidemark frontiers`: the frontiers of source tables and exports, live from the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tidemark.gateway.channel import CALL_SECONDS
from tidemark.gateway.discovery import Gateway
from tidemark_cli import options
from tidemark_cli.options import Command, calls_gateway
from tidemark_cli.output import times
from tidemark_cli.output.text import printable
from tidemark_cli.watch import ListingFormat, print_listing
from tidemark_protocol.pb.gateway_pb2 import CollectionFrontiers, FrontiersReply, FrontiersRequest

_EXAMPLES = """
# List the frontiers of a namespace
kubectl tidemark frontiers -n team-a

# List those of all namespaces as JSON, with the operators of a hydration
kubectl tidemark frontiers -A -o json

# Follow them: a live table on a terminal, else each row that changed
kubectl tidemark frontiers --watch
"""
_COLUMNS = ("NAME", "KIND", "READABLE FROM", "COMPLETE BEFORE", "LAG", "BEHIND", "HYDRATED", "REPLICAS")
_COLOURS = {
    "True": "green",
    "False": "yellow",
    "stopped": "red",
    "<none>": "yellow",
    "<unknown>": "dim",
    "finished": "dim",
}


@click.command(cls=Command, epilog=_EXAMPLES)
@click.option("-A", "--all-namespaces", is_flag=True, help="List the frontiers of all namespaces.")
@options.watch
@options.output
@calls_gateway(again=True)
def frontiers(gateway: Callable[[], Gateway], namespace: str, all_namespaces: bool, watch: bool, output: str) -> None:
    """List how far tables and exports are complete.

    HYDRATED is True, False, or how much of the hydration is done in percent. BEHIND is of tables: what the source has
    and the table lacks, or how much of the snapshot is read.
    """
    request = FrontiersRequest(namespace=namespace, all_namespaces=all_namespaces)

    def ask(stub: Any, metadata: Any) -> FrontiersReply:
        reply: FrontiersReply = stub.Frontiers(request, metadata=metadata, timeout=CALL_SECONDS)
        reply.collections.sort(key=lambda c: (c.namespace, c.name))
        return reply

    only = "" if all_namespaces else namespace
    key, clocked = ("namespace", "name"), frozenset({"LAG"})
    listing = ListingFormat("collections", _COLUMNS, _row, key, only, _COLOURS, clocked)
    print_listing(gateway, ask, listing, output, watched=watch)


def _row(c: CollectionFrontiers, reply: FrontiersReply) -> list[str]:
    read, write = _optional(c, "read"), _optional(c, "write")
    return [
        printable(c.name),
        c.kind,
        "<unknown>" if read is None else times.show(read),
        "<unknown>" if write is None else times.show(write),
        times.show_lag(reply.now, write),
        _format_backlog(c),
        _hydrated(c),
        ",".join(r.replica for r in c.replicas) or "<none>",
    ]


def _format_backlog(c: CollectionFrontiers) -> str:
    """The text of the column BEHIND: `stopped`, `snapshot 12%` or `3 versions`; `<none>` of exports, and of tables
    whose source does not tell."""
    if c.stopped:
        return "stopped"
    if (percent := _optional(c, "snapshot_percent")) is not None:
        return f"snapshot {percent}%"
    behind = _optional(c, "behind")
    return "<none>" if behind is None else f"{behind} {c.unit}"


def _hydrated(c: CollectionFrontiers) -> str:
    percent = _optional(c, "hydrated_percent")
    return "True" if c.hydrated else "False" if percent is None else f"{percent}%"


def _optional(message: Any, field: str) -> int | None:
    return getattr(message, field) if message.HasField(field) else None
