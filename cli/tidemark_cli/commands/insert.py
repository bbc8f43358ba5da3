"""`kubectl tidemark insert SOURCE --from FILE`: one transaction of a DataSource whose rows clients write.

FILE ──► pieces ──► gateway ──► ingester          lost before the answer: the same call with the same key, again
                      ◄── time ──                 so the rows are written once, whoever dies
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click
import grpc

from tidemark.errors import Error, GatewayUnknown
from tidemark.gateway.channel import connected
from tidemark.gateway.discovery import Gateway
from tidemark_cli import completion_names, options
from tidemark_cli.errors import CliError
from tidemark_cli.options import Command, calls_gateway
from tidemark_cli.output import times
from tidemark_cli.output.formats import print_record
from tidemark_cli.output.terminal import show_elapsed_time
from tidemark_cli.output.text import printable
from tidemark_protocol.pb.gateway_pb2 import InsertHeader, InsertReply, InsertRequest

_EXAMPLES = """
# Insert the rows of a file into the only table of a DataSource
kubectl tidemark insert shop --from orders.csv -n team-a

# Replace or insert rows of one of its tables by the primary key, from standard input
kubectl tidemark insert shop.orders --from - --format jsonl --upsert

# Delete rows
kubectl tidemark insert shop.orders --from cancelled.parquet --delete
"""
PIECE_BYTES = 1 << 20
SECONDS, FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX = 120.0, 0.2, 5.0
_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet"}
_AGAIN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
"""Statuses after which the call is repeated while there is time: nothing was written, or whether is not known."""
_STOPPED = "55000"
"""The SQLSTATE of a table that takes no rows until somebody changes something."""
_AFTER_LOSS = (*_AGAIN, grpc.StatusCode.UNAUTHENTICATED, None)
"""The same after a first try: another operator has another token, and may not be found yet."""


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("name", metavar="SOURCE[.TABLE]", shell_complete=completion_names.sources)
@click.option("--from", "file", required=True, metavar="FILE|-", help="File with the rows; - is standard input.")
@click.option(
    "--format",
    type=click.Choice(sorted({*_FORMATS.values()})),
    help="Format of the rows. The default goes by the file's name: .csv, .jsonl, .ndjson, .json (one document), "
    ".parquet.",
)
@click.option("--upsert", is_flag=True, help="Replace rows with the same primary key; insert the others.")
@click.option("--delete", is_flag=True, help="Delete the rows: by the primary key where there is one, else as a whole.")
@click.option("--key", default="", metavar="KEY", help="Key of this call: with it, the call is done once. [random]")
@options.timeout
@options.output
@calls_gateway(again=True)
def insert(
    gateway: Callable[[], Gateway],
    namespace: str,
    name: str,
    file: str,
    format: str | None,
    upsert: bool,
    delete: bool,
    key: str,
    timeout: float | None,
    output: str,
) -> None:
    """Insert, upsert or delete rows of a DataSource of kind table.

    All rows are one transaction: they are there at one time, or none of them is. The command ends when they are durable
    and prints that time, for --as-of. It repeats a call whose answer was lost, with the same key, for --timeout (2m).
    """
    if upsert and delete:
        raise click.UsageError("--upsert and --delete exclude each other")
    source, _, table = name.partition(".")
    header = InsertHeader(
        namespace=namespace,
        source=source,
        table=table,
        operation="upsert" if upsert else "delete" if delete else "insert",
        format=format or _format_of(file),
        key=key or uuid.uuid4().hex,
    )
    with _opened(file) as body, show_elapsed_time(f"writing to {name}") as show:
        try:
            reply = _repeated(gateway, header, body, SECONDS if timeout is None else timeout, _RepeatNotice(show))
        except KeyboardInterrupt:
            print(f"interrupted. {_advice(header)}", file=sys.stderr)
            raise
    found = {"table": reply.table, "time": reply.time, "rows": reply.rows, "repeated": reply.repeated}
    rows = f"{reply.rows} {'row' if reply.rows == 1 else 'rows'}"
    text = f"{rows} of {source}.{printable(reply.table)} {_DONE[header.operation]} at {times.show(reply.time)}"
    print_record(output, found | {"key": header.key}, text, sys.stdout)


_DONE = {"insert": "inserted", "upsert": "upserted", "delete": "deleted"}


class _RepeatNotice:
    """Shows why a call is repeated: in the terminal's line, or once on standard error where that is no terminal."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._last = show, ""

    def __call__(self, failure: Error) -> None:
        text = f"trying again: {printable(str(failure))}"
        self._show(text)
        if not sys.stderr.isatty() and text != self._last:
            print(text, file=sys.stderr)
        self._last = text


def _advice(header: InsertHeader) -> str:
    return f"Give the same command with --key {header.key}: it repeats the call, or reports that it was done"


def _repeated(
    find: Callable[[], Gateway],
    header: InsertHeader,
    body: IO[bytes],
    seconds: float,
    notify: Callable[[Error], None],
) -> InsertReply:
    """The reply, once there is one. `notify`: gets the failure of each call that is repeated. Raises Error where the
    call is refused, CliError at the end of the time."""
    until, pause, tried = time.monotonic() + seconds, FIRST_PAUSE_SECONDS, False
    while True:
        failure: Error
        try:
            gateway = find()
            with connected(gateway) as stub:
                left = max(1.0, until - time.monotonic())
                reply: InsertReply = stub.Insert(_messages(header, body), metadata=gateway.metadata, timeout=left)
                return reply
        except GatewayUnknown as error:
            if not tried:
                raise
            failure = error
        except Error as error:
            if error.sqlstate == _STOPPED and tried:  # an earlier call may have written the rows
                raise CliError(f"{error}. {_advice(header)}") from None
            if error.sqlstate == _STOPPED or error.code not in (_AFTER_LOSS if tried else _AGAIN):
                raise
            failure = error
        tried = True
        if time.monotonic() + pause > until:
            raise CliError(f"{failure}. {_advice(header)}")
        notify(failure)
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)


def _messages(header: InsertHeader, body: IO[bytes]) -> Iterator[InsertRequest]:
    yield InsertRequest(header=header)
    body.seek(0)
    size = 0
    while piece := body.read(PIECE_BYTES):
        size += len(piece)
        yield InsertRequest(data=piece)
    yield InsertRequest(end=size)


def _format_of(file: str) -> str:
    found = _FORMATS.get(Path(file).suffix.lower())
    if found is None:
        raise click.UsageError(f"the format of {file} is not clear from its name: give --format")
    return found


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """The file, to be read several times: standard input is kept on disk."""
    if file == "-":
        with tempfile.TemporaryFile() as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept, PIECE_BYTES)
            yield kept
        return
    try:
        opened = open(file, "rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise CliError(f"file {file} cannot be read: {error.strerror}") from None
    with opened:
        yield opened
