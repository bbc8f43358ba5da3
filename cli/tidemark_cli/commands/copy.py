"""`kubectl tidemark copy`: what a query or an export holds at one time, as files."""

from __future__ import annotations

import sys

import click

from tidemark.gateway.channel import connected
from tidemark.gateway.discovery import Gateway
from tidemark_cli import completion_names, options
from tidemark_cli.options import TIME, Command, calls_gateway
from tidemark_cli.output import times
from tidemark_cli.output.formats import print_record
from tidemark_cli.output.terminal import show_elapsed_time
from tidemark_cli.output.text import printable
from tidemark_protocol.copy_location import FORMATS
from tidemark_protocol.pb.gateway_pb2 import CopyRequest

_EXAMPLES = """
# Write an export as Parquet files
kubectl tidemark copy delays --to delays/2026-01-31 --format parquet

# Write a query's rows, as of a time, as CSV files
kubectl tidemark copy 'SELECT * FROM delays WHERE flights > 100' --to big --format csv --as-of 2026-01-31T12:00
"""


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("subject", metavar="NAME|SQL", shell_complete=completion_names.relations)
@click.option("--to", required=True, metavar="FOLDER", help="New folder, below the namespace's folder for copies.")
@click.option("--format", required=True, type=click.Choice(FORMATS), help="Format of the files.")
@click.option("--as-of", type=TIME, help="Time of the rows. The default is the newest complete one.")
@options.timeout
@options.instance
@options.output
@calls_gateway()
def copy(
    gateway: Gateway,
    namespace: str,
    subject: str,
    to: str,
    format: str,
    as_of: int | None,
    timeout: float | None,
    instance: str,
    output: str,
) -> None:
    """Write what a query or an export holds to files.

    NAME is a table or an export. The files are in the instance's storage, and hold the rows of one time. The command
    waits for them; Ctrl-C and the end of --timeout cancel the copy.
    """
    request = CopyRequest(namespace=namespace, subject=subject, instance=instance, as_of=as_of, to=to, format=format)
    with connected(gateway) as stub:
        call = stub.Copy.future(request, metadata=gateway.metadata, timeout=timeout)
        try:
            with show_elapsed_time(f"copying to {to}"):
                reply = call.result()
        except KeyboardInterrupt:
            call.cancel()
            raise
    rows = f"{reply.row_count} {'row' if reply.row_count == 1 else 'rows'}"
    text = f"{rows} as of {times.show(reply.as_of)} copied to {printable(reply.location)}"
    found = {"as_of": reply.as_of, "rows": reply.row_count, "location": reply.location}
    print_record(output, found, text, sys.stdout)
