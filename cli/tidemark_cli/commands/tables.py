"""`kubectl tidemark tables --retained`: the tables in storage that no object has; or the deletion of one of them.

TABLE               KIND        STATE     SIZE   UPPER                     OWNER    INSTANCE
delays/delays/v1    Dataflow    retained  18342  2026-01-31T12:00:01.000Z  0f3c...  default
flights/__remap/v1  DataSource  retained  1220   2026-01-31T12:00:01.000Z  91d2...  default
"""

from __future__ import annotations

import sys

import click

from tidemark.gateway.channel import CALL_SECONDS, connected
from tidemark.gateway.discovery import Gateway
from tidemark_cli import options
from tidemark_cli.options import Command, calls_gateway
from tidemark_cli.output import times
from tidemark_cli.output.messages import print_reply
from tidemark_cli.output.rows import print_table
from tidemark_cli.output.terminal import show_elapsed_time
from tidemark_cli.output.text import printable
from tidemark_protocol.pb.gateway_pb2 import (
    DeleteTableRequest,
    RetainedTable,
    RetainedTablesReply,
    RetainedTablesRequest,
)

_EXAMPLES = """
# List the tables that deleted DataSources and Dataflows left
kubectl tidemark tables --retained -n team-a

# Delete one of them
kubectl tidemark tables --delete delays/delays/v1

# List them as JSON
kubectl tidemark tables --retained -o json
"""
_COLUMNS = ("TABLE", "KIND", "STATE", "SIZE", "UPPER", "OWNER", "INSTANCE")
_COLOURS = {"unreadable": "red", "deleting": "yellow", "replaced": "dim", "<unknown>": "dim"}


@click.command(cls=Command, epilog=_EXAMPLES)
@click.option("--retained", is_flag=True, help="List the tables that no DataSource or Dataflow has.")
@click.option("--delete", metavar="TABLE", help="Delete this table, which no object has.")
@click.option("--instance", default="", metavar="NAME", help="ComputeInstance in whose storage the table is.")
@options.output
@calls_gateway()
def tables(gateway: Gateway, namespace: str, retained: bool, delete: str | None, instance: str, output: str) -> None:
    """List the tables in storage that no object has; or delete one.

    STATE is retained (no object has their name: adopt: true goes on with them), replaced (an object of the name has
    other tables), deleting or unreadable. OWNER is the uid of the object that made the table. NAME/VIEW/published is an
    ordinary table of a view that is published no more.
    """
    if retained == (delete is not None):
        raise click.UsageError("give --retained, or --delete TABLE")
    with connected(gateway) as stub:
        if delete is not None:
            request = DeleteTableRequest(namespace=namespace, table=delete, instance=instance)
            location = stub.DeleteTable(request, metadata=gateway.metadata, timeout=CALL_SECONDS).location
            print(f"Table {printable(location)} is being deleted.")
            return
        with show_elapsed_time("the storage"):
            listing = RetainedTablesRequest(namespace=namespace)
            reply = stub.RetainedTables(listing, metadata=gateway.metadata, timeout=2 * CALL_SECONDS)
    if output != "table":
        print_reply(output, reply, "tables")
    else:
        _print(reply)


def _print(reply: RetainedTablesReply) -> None:
    if reply.tables:
        print_table(list(_COLUMNS), [_row(table) for table in reply.tables], _COLOURS, sys.stdout)
    elif not reply.unlisted:
        print("No retained tables found.")
    if reply.more:
        print("There are more tables than are listed.", file=sys.stderr)
    for table in reply.tables:
        if table.error:
            print(f"warning: {_name(table)} cannot be read: {printable(table.error)}", file=sys.stderr)
    for instance in reply.unlisted:
        print(f"warning: not listed: the storage of ComputeInstance {printable(instance)}", file=sys.stderr)


def _row(table: RetainedTable) -> list[str]:
    known = not table.error
    return [
        _name(table),
        table.kind or "<unknown>",
        table.state,
        str(table.bytes) if known else "<unknown>",
        times.show(table.upper) if known else "<unknown>",
        printable(table.owner) or "<unknown>",
        printable(table.instance),
    ]


def _name(table: RetainedTable) -> str:
    version = f"v{table.version}" if table.version else "published"
    return printable(f"{table.name}/{table.part}/{version}")
