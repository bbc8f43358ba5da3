"""`kubectl tidemark subscribe`: what a query or an export holds, then every change to it, as it happens.

__time                    __diff  carrier  flights
2026-01-31T12:00:00.000Z       1  UA         58665
2026-01-31T12:00:01.000Z      -1  UA         58665
2026-01-31T12:00:01.000Z       1  UA         58666
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from typing import TextIO

import click
import pyarrow as pa

from tidemark.changes import Batches, subscribed
from tidemark.gateway.discovery import Gateway
from tidemark.link import Link
from tidemark_cli import completion_names, current_rows, options
from tidemark_cli.options import TIME, Command, calls_gateway
from tidemark_cli.output import live as terminal_output
from tidemark_cli.output import times
from tidemark_cli.output.formats import lines
from tidemark_protocol.pb.gateway_pb2 import SubscribeHeader, SubscribeRequest
from tidemark_protocol.rows.updates import DIFF_COLUMN, TIME_COLUMN, unseen
from tidemark_protocol.rows.values import values
from tidemark_protocol.times import EMPTY

TOKEN_LIFETIME = "12h"
_EXAMPLES = """
# Print the rows of an export, then every change
kubectl tidemark subscribe delays

# Print the changes alone, as JSON lines, with the time up to which they are complete
kubectl tidemark subscribe 'SELECT carrier, count(*) FROM flights GROUP BY carrier' --no-snapshot --progress -o json

# Watch the rows themselves, those with the most flights first
kubectl tidemark subscribe delays --live --sort-by -flights
"""


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("subject", metavar="NAME|SQL", shell_complete=completion_names.relations)
@click.option("--as-of", type=TIME, help="Time to begin with. The default is the newest complete one.")
@click.option("--up-to", type=TIME, help="End with the last change before this time.")
@click.option("--snapshot/--no-snapshot", default=True, help="Begin with the rows that there are, or with changes.")
@click.option("--progress", is_flag=True, help="Print also up to which time the changes are complete.")
@click.option("--live", is_flag=True, help="Show the rows that there are as a live table, on a terminal.")
@click.option(
    "--sort-by",
    default="",
    metavar="COLUMN",
    help="Order of the live table: a column, or -COLUMN for the largest first.",
)
@options.instance
@click.option(
    "--replica",
    default="",
    metavar="NAME",
    shell_complete=completion_names.replicas,
    help="Only ComputeReplica that may answer. The subscribe ends with it.",
)
@options.output
@calls_gateway(TOKEN_LIFETIME, again=True)
def subscribe(
    gateway: Callable[[], Gateway],
    namespace: str,
    subject: str,
    as_of: int | None,
    up_to: int | None,
    snapshot: bool,
    progress: bool,
    live: bool,
    sort_by: str,
    instance: str,
    replica: str,
    output: str,
) -> None:
    """Print what a query or an export holds, then every change to it.

    NAME is a table or an export. Each change has its time and its diff: 1 for a row that comes, -1 for a row that goes.
    It ends with Ctrl-C, at --up-to, or when no change can come anymore. With --live it shows the rows themselves, and
    begins anew by itself where the gateway was away.
    """
    _check_live(live, sort_by, snapshot, output)
    request = SubscribeRequest(
        namespace=namespace,
        subject=subject,
        instance=instance,
        as_of=as_of,
        up_to=up_to,
        without_snapshot=not snapshot,
        progress=progress or live,
        replica=replica,
        parts=True,
    )
    if live:
        current_rows.follow(gateway, request, sort_by)
        return
    with closing(Link(gateway)) as link, subscribed(link, request) as (header, batches):
        _print(header, batches, progress, output, sys.stdout)


def _check_live(live: bool, sort_by: str, snapshot: bool, output: str) -> None:
    """Raises click.UsageError where the options do not fit each other or standard output."""
    if sort_by and not live:
        raise click.UsageError("--sort-by belongs to --live: changes come in order of time")
    if live and (output != "table" or not snapshot):
        raise click.UsageError("--live shows a table of all rows: leave out --output and --no-snapshot")
    if live and not terminal_output.is_possible():
        raise click.UsageError("--live needs a terminal as standard output: leave it out to print changes")


def _print(header: SubscribeHeader, batches: Batches, progress: bool, output: str, out: TextIO) -> None:
    printer = _Printer(header, output, out)
    for batch, data in batches:
        if data:
            printer.updates(unseen(pa.ipc.open_stream(data).read_all(), batch.lower, batch.lower_part))
        if progress and batch.upper > header.as_of:  # the rows at as_of are complete
            printer.progress(batch.upper)
        out.flush()
    print("(finished)", file=sys.stderr)


class _Printer:
    """Prints updates as rows with their times and diffs. Times are numbers, but for people."""

    def __init__(self, header: SubscribeHeader, output: str, out: TextIO) -> None:
        names, types = [TIME_COLUMN, DIFF_COLUMN, *header.column_names], ["timestamp", "bigint", *header.column_types]
        self._writer, self._is_flat = lines(output, names, types, out), output in ("table", "csv")
        self._show = times.show if output == "table" else int
        if self._is_flat:
            print(f"(from {times.show(header.as_of)})", file=sys.stderr)

    def updates(self, updates: pa.Table) -> None:
        for batch in updates.to_batches():
            at = map(self._show, batch.column(TIME_COLUMN).to_pylist())
            diffs = batch.column(DIFF_COLUMN).to_pylist()
            self._writer.rows(list(zip(at, diffs, *map(values, batch.columns[:-3]), strict=True)))

    def progress(self, upper: int) -> None:
        if not self._is_flat:
            self._writer.item({"__progress": None if upper == EMPTY else upper})
        elif upper != EMPTY:
            print(f"(complete before {times.show(upper)})", file=sys.stderr)
