"""`kubectl tidemark top`: what dataflows keep and take on each replica, as replicas reported it last.

NAME    INSTANCE  REPLICA  CPU(cores)  STATE(bytes)  RECORDS  STEPS  HYDRATED
delays  default   r1       120m        34Mi          58665    1042   True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tidemark.gateway.channel import CALL_SECONDS
from tidemark.gateway.discovery import Gateway
from tidemark_cli import options
from tidemark_cli.options import Command, calls_gateway
from tidemark_cli.output.text import printable
from tidemark_cli.watch import ListingFormat, print_listing
from tidemark_protocol.pb.gateway_pb2 import DataflowUsage, TopReply, TopRequest

_EXAMPLES = """
# List the dataflows of a namespace, those with the most state first
kubectl tidemark top -n team-a

# List those of all namespaces by the processor time that they take, and go on
kubectl tidemark top -A --sort-by cpu --watch
"""
_COLUMNS = ("NAME", "INSTANCE", "REPLICA", "CPU(cores)", "STATE(bytes)", "RECORDS", "STEPS", "HYDRATED")
_COLOURS = {"True": "green", "False": "yellow", "<unknown>": "dim"}
_KEYS: dict[str, Callable[[DataflowUsage], float]] = {
    "state": lambda usage: -usage.bytes,
    "cpu": lambda usage: -usage.cores,
    "records": lambda usage: -usage.records,
    "name": lambda usage: 0,
}


@click.command(cls=Command, epilog=_EXAMPLES)
@click.option("-A", "--all-namespaces", is_flag=True, help="List the dataflows of all namespaces.")
@click.option(
    "--sort-by",
    type=click.Choice(list(_KEYS)),
    default="state",
    show_default=True,
    help="Order: the dataflow with the most state, cpu or records first, or by name.",
)
@options.watch
@options.output
@calls_gateway(again=True)
def top(
    gateway: Callable[[], Gateway], namespace: str, all_namespaces: bool, sort_by: str, watch: bool, output: str
) -> None:
    """List dataflows by the state that they keep and the processor time that they take.

    STATE and RECORDS are of a dataflow's arrangements. Replicas keep them in files, and the system caches these in
    memory. CPU is the time of its tasks in the last ten seconds. Replicas report every ten seconds.
    """
    request = TopRequest(namespace=namespace, all_namespaces=all_namespaces)

    def ask(stub: Any, metadata: Any) -> TopReply:
        reply: TopReply = stub.Top(request, metadata=metadata, timeout=CALL_SECONDS)
        ordered = sorted(reply.dataflows, key=lambda d: (_KEYS[sort_by](d), d.namespace, d.name, d.replica))
        return TopReply(dataflows=ordered, now=reply.now)

    only, key = "" if all_namespaces else namespace, ("namespace", "name", "instance", "replica")
    listing = ListingFormat("dataflows", _COLUMNS, _row, key, only, _COLOURS)
    print_listing(gateway, ask, listing, output, watched=watch)


def _row(usage: DataflowUsage, reply: TopReply) -> list[str]:
    percent = f"{usage.hydrated_percent}%" if usage.HasField("hydrated_percent") else "False"
    return [
        printable(usage.name),
        usage.instance,
        usage.replica,
        _format_or_unknown(usage, "cores", _cores),
        _format_or_unknown(usage, "bytes", _bytes),
        _format_or_unknown(usage, "records", str),
        _format_or_unknown(usage, "steps", str),
        "True" if usage.hydrated else percent,
    ]


def _format_or_unknown(usage: DataflowUsage, field: str, show: Callable[[Any], str]) -> str:
    """The text that `show` makes of a field; `<unknown>` where the operator sent none."""
    return show(getattr(usage, field)) if usage.HasField(field) else "<unknown>"


def _cores(cores: float) -> str:
    """Thousandths of a core, as kubectl shows them."""
    return f"{round(cores * 1000)}m"


def _bytes(count: int) -> str:
    """The size in the largest unit of which there are at least ten, as kubectl shows memory."""
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if count >= 10 * size:
            return f"{count // size}{unit}"
    return str(count)
