"""`kubectl tidemark files SOURCE`: the files of a DataSource, and what became of each.

TABLE     FILE     SIZE  ROWS  ERRORS  STATE    REASON           TIME
flights   2.csv    8     0     1       refused  SCHEMA_MISMATCH  2026-01-31T12:00:01.000Z
flights   1.csv    12    2     0       read     <none>           2026-01-31T12:00:00.000Z
"""

from __future__ import annotations

import sys

import click

from tidemark_cli import options
from tidemark_cli.gateway.channel import CALL_SECONDS, connected
from tidemark_cli.gateway.discovery import Gateway
from tidemark_cli.options import Command, calls_gateway
from tidemark_cli.output import times
from tidemark_cli.output.messages import print_json
from tidemark_cli.output.terminal import print_table
from tidemark_cli.output.text import printable
from tidemark_protocol.pb.gateway_pb2 import FilesReply, FilesRequest, ListedFile

_EXAMPLES = """
# List the files of a DataSource: those with errors first, then the newest
kubectl tidemark files flights -n team-a

# List them as JSON
kubectl tidemark files flights -o json
"""
_COLUMNS = ("TABLE", "FILE", "SIZE", "ROWS", "ERRORS", "STATE", "REASON", "TIME")
_COLOURS = {"refused": "red", "pending": "yellow", "released": "dim", "<none>": "dim", "<unknown>": "dim"}


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("source")
@options.output
@calls_gateway()
def files(gateway: Gateway, namespace: str, source: str, output: str) -> None:
    """List the files of a DataSource, and what became of them.

    STATE is pending, read, refused (the file as a whole) or released. ERRORS counts the file's error rows in its table.
    Files that need attention come first, then the newest.
    """
    with connected(gateway) as stub:
        request = FilesRequest(namespace=namespace, source=source)
        reply = stub.Files(request, metadata=gateway.metadata, timeout=CALL_SECONDS)
    if output == "json":
        print_json(reply)
    elif reply.files:
        _print_table(reply)
    else:
        print(f"No files found of DataSource {source}.")


def _print_table(reply: FilesReply) -> None:
    print_table(list(_COLUMNS), [_row(file) for file in reply.files], _COLOURS, sys.stdout)
    shown = sum(file.state not in ("pending", "released") for file in reply.files)
    if reply.bound > shown:
        print(f"{reply.bound - shown} more files were read.", file=sys.stderr)


def _row(file: ListedFile) -> list[str]:
    return [
        printable(file.table),
        printable(file.file),
        str(file.size),
        str(file.rows) if file.HasField("rows") else "<unknown>",
        str(file.errors),
        file.state,
        printable(file.reason) or "<none>",
        times.show(file.time) if file.HasField("time") else "<unknown>",
    ]
