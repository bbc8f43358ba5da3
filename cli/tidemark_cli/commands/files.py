"""`kubectl tidemark files SOURCE`: the files of a DataSource, and what became of each; or a request about one of them.

TABLE     FILE     SIZE  ROWS  ERRORS  STATE    REASON           TIME
flights   2.csv    8     0     1       refused  SCHEMA_MISMATCH  2026-01-31T12:00:01.000Z
flights   1.csv    12    2     0       read     <none>           2026-01-31T12:00:00.000Z
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import click

from tidemark.gateway.channel import CALL_SECONDS, connected
from tidemark.gateway.discovery import Gateway
from tidemark_cli import completion_names, options
from tidemark_cli.errors import CliError
from tidemark_cli.options import Command, calls_gateway
from tidemark_cli.output import times
from tidemark_cli.output.messages import print_reply
from tidemark_cli.output.rows import print_table
from tidemark_cli.output.terminal import show_elapsed_time
from tidemark_cli.output.text import printable
from tidemark_protocol.pb.gateway_pb2 import ChangeFileRequest, FileChange, FilesReply, FilesRequest, ListedFile

_EXAMPLES = """
# List the files of a DataSource: those with errors first, then the newest
kubectl tidemark files flights -n team-a

# Let a file go: its rows and its errors are taken back at one time
kubectl tidemark files flights --release 2026-01-31.csv

# Have a file of the table arrivals read again, once it is mended
kubectl tidemark files flights --reread arrivals/2026-01-31.csv

# List them as JSON
kubectl tidemark files flights -o json
"""
OUTCOME_SECONDS, POLL_SECONDS = 60.0, 0.5
_COLUMNS = ("TABLE", "FILE", "SIZE", "ROWS", "ERRORS", "STATE", "REASON", "TIME")
_COLOURS = {"refused": "red", "pending": "yellow", "released": "dim", "<none>": "dim", "<unknown>": "dim"}


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("source", shell_complete=completion_names.sources)
@click.option("--release", metavar="FILE", help="Let this file go: its rows and errors are taken back at one time.")
@click.option("--reread", metavar="FILE", help="Replace the file's rows and errors by what it holds now.")
@options.output
@calls_gateway()
def files(gateway: Gateway, namespace: str, source: str, release: str | None, reread: str | None, output: str) -> None:
    """List the files of a DataSource; let one go, or have it read again.

    STATE is pending, read, refused (the file as a whole) or released. ERRORS counts the file's error rows in its table.
    Files that need attention come first, then the newest. FILE is a name, or TABLE/NAME.
    """
    if release is not None and reread is not None:
        raise click.UsageError("--release and --reread exclude each other")
    with connected(gateway) as stub:
        listing = FilesRequest(namespace=namespace, source=source)
        ask = partial(stub.Files, listing, metadata=gateway.metadata, timeout=CALL_SECONDS)
        if (file := release if reread is None else reread) is not None:
            action = "release" if reread is None else "reread"
            request = ChangeFileRequest(namespace=namespace, source=source, action=action, file=file)
            id = stub.ChangeFile(request, metadata=gateway.metadata, timeout=CALL_SECONDS).id
            _await_outcome(ask, id)
            return
        reply = ask()
    if output != "table":
        print_reply(output, reply, "files")
    elif reply.files:
        _print_table(reply)
    else:
        print(f"No files found of DataSource {source}.")


def _await_outcome(ask: Callable[[], FilesReply], id: int) -> None:
    """Waits for the outcome of a request, and prints it. Raises CliError where it was refused."""
    until = time.monotonic() + OUTCOME_SECONDS
    with show_elapsed_time("the ingester"):
        while (change := _change(ask(), id)) is not None and not change.outcome and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
    if change is None:
        print("The request ended; the list of files has its outcome.")
        return
    name = f"{printable(change.table)}/{printable(change.file)}"
    if change.outcome == "refused":
        raise CliError(f"file {name} stays as it was: {printable(change.message)}")
    if change.outcome:
        print(f"File {name} was {'released' if change.action == 'release' else 'read again'}.")
    else:
        print(f"The request about file {name} is stored; it is done once the DataSource ingests.")


def _change(reply: FilesReply, id: int) -> FileChange | None:
    return next((change for change in reply.changes if change.id == id), None)


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
