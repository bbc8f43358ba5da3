"""`kubectl tidemark why NAME`: the causes of a frontier, as a tree.

    delays.by-carrier (index) complete before 2026-01-31T12:00:01.000Z, 1.2s behind: has everything that ... has
    * flights.arrivals (table) complete before 2026-01-31T12:00:01.000Z, 1.2s behind: DataSource flights: on replica r1
      replica r1 complete before 2026-01-31T12:00:01.000Z, 1.2s behind: has read everything that its inputs have

A star marks the causes that lead to the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from tidemark.gateway.channel import CALL_SECONDS, connected
from tidemark.gateway.discovery import Gateway
from tidemark_cli import completion_names, options
from tidemark_cli.options import Command, calls_gateway
from tidemark_cli.output import times
from tidemark_cli.output.formats import lines
from tidemark_cli.output.messages import print_reply, values
from tidemark_cli.output.text import printable
from tidemark_protocol.pb.gateway_pb2 import Cause, WhyRequest
from tidemark_protocol.times import EMPTY

_EXAMPLES = """
# Explain what holds a Dataflow back
kubectl tidemark why delays -n team-a

# Explain what holds one of its exports back, as JSON
kubectl tidemark why delays.by-carrier -o json
"""

_FIELDS = ("subject", "kind", "write", "says", "holds")


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("name", shell_complete=completion_names.relations)
@options.output
@calls_gateway()
def why(gateway: Gateway, namespace: str, name: str, output: str) -> None:
    """Explain what holds a frontier back.

    NAME is a Dataflow or a DataSource, or an export or a table of one. A star marks the causes that lead to the reason.
    """
    request = WhyRequest(namespace=namespace, name=name)
    with connected(gateway) as stub:
        reply = stub.Why(request, metadata=gateway.metadata, timeout=CALL_SECONDS)
    if output == "csv":
        writer = lines(output, ["depth", *_FIELDS], [], sys.stdout)
        writer.rows([row for cause in reply.causes for row in _rows(cause, 0)])
        return
    if output != "table":
        print_reply(output, reply, "causes")
        return
    for cause in reply.causes:
        for line in _lines(cause, reply.now, 0):
            print(line)


def _rows(cause: Cause, depth: int) -> Iterator[list[Any]]:
    """The tree as rows: a cause, then those below it, with their depth."""
    yield [depth, *values(cause, _FIELDS)]
    for below in cause.because:
        yield from _rows(below, depth + 1)


def _lines(cause: Cause, now: int, depth: int) -> Iterator[str]:
    mark = "* " if cause.holds else "  "
    indent = "  " * (depth - 1) + mark if depth else ""
    kind = "" if cause.kind == "replica" else f" ({cause.kind})"
    yield f"{indent}{printable(cause.subject)}{kind} {_frontier(cause, now)}: {printable(cause.says)}"
    for below in cause.because:
        yield from _lines(below, now, depth + 1)


def _frontier(cause: Cause, now: int) -> str:
    if not cause.HasField("write"):
        return "at no known time"
    if cause.write == EMPTY:
        return "finished"
    return f"complete before {times.show(cause.write)}, {times.show_lag(now, cause.write)} behind"
