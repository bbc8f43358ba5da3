"""`kubectl tidemark query`: the rows of a SELECT, printed while they arrive."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click
import pyarrow as pa

from tidemark.answers import open_rows, read_header
from tidemark.gateway.channel import connected
from tidemark.gateway.discovery import Gateway
from tidemark_cli import completion_names, options
from tidemark_cli.options import TIME, Command, calls_gateway
from tidemark_cli.output import times
from tidemark_cli.output.formats import document
from tidemark_cli.output.terminal import show_elapsed_time
from tidemark_cli.output.text import printable
from tidemark_protocol.pb.gateway_pb2 import QueryHeader, QueryReply, QueryRequest
from tidemark_protocol.rows.values import values

_EXAMPLES = """
# Print the five largest rows of an export
kubectl tidemark query 'SELECT carrier, flights FROM delays ORDER BY flights DESC LIMIT 5'

# Print a join as of a time, as JSON
kubectl tidemark query 'SELECT * FROM delays JOIN carriers USING (carrier)' --as-of 2026-01-31T12:00 -o json

# Print the rows that are right, although some are errors
kubectl tidemark query 'SELECT * FROM prices' --skip-errors

# Call as a ServiceAccount
kubectl tidemark query 'SELECT * FROM delays' -n team-a --service-account reader
"""


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("sql")
@click.option(
    "--as-of",
    type=TIME,
    help="Time of the answer: milliseconds since 1970, or 2026-01-31T12:00. The default is the newest complete one.",
)
@click.option("--strict", is_flag=True, help="Wait until the answer holds everything that is ingested now.")
@options.timeout
@options.instance
@click.option(
    "--replica",
    default="",
    metavar="NAME",
    shell_complete=completion_names.replicas,
    help="Only ComputeReplica that may answer. The query fails with it.",
)
@click.option(
    "--skip-errors",
    is_flag=True,
    help="Print the rows that are right, and a warning with the number of errors. Only for rows of one table or export "
    "that are computed one by one: no joins, aggregates, or ORDER BY with LIMIT.",
)
@click.option(
    "--dialect",
    type=click.Choice(["spark", "postgres", "duckdb", "snowflake", "bigquery", "tsql"]),
    default="spark",
    show_default=True,
    help="Whose SQL it is. What would mean something else is refused by name.",
)
@options.output
@calls_gateway()
def query(
    gateway: Gateway,
    namespace: str,
    sql: str,
    as_of: int | None,
    strict: bool,
    timeout: float | None,
    instance: str,
    replica: str,
    skip_errors: bool,
    dialect: str,
    output: str,
) -> None:
    """Print the answer to a SELECT over exports and tables, as of one time.

    Rows of one export are read at once. Joins, aggregates and the like are computed for the query. Ctrl-C and the end
    of --timeout cancel it.
    """
    request = QueryRequest(
        namespace=namespace,
        sql=sql,
        as_of=as_of,
        instance=instance,
        strict=strict,
        replica=replica,
        places=sys.stderr.isatty(),
        skip_errors=skip_errors,
        dialect="" if dialect == "spark" else dialect,
    )
    with connected(gateway) as stub:
        call = stub.Query(request, metadata=gateway.metadata, timeout=timeout)
        try:
            with show_elapsed_time("waiting for the answer") as describe:
                header = read_header(call, lambda place: describe(printable(place)))
                batches = _batches(call)
            _print(header, batches, output, sys.stdout)
            if errors := header.skipped_errors:
                rows = "1 row is an error and is" if errors == 1 else f"{errors} rows are errors and are"
                print(f"warning: {rows} left out", file=sys.stderr)
        except KeyboardInterrupt:
            call.cancel()
            raise


def _batches(replies: Iterator[QueryReply]) -> Iterator[pa.RecordBatch]:
    """Nothing is waited for before the first is wanted."""
    yield from open_rows(replies)


def _print(header: QueryHeader, batches: Iterator[pa.RecordBatch], output: str, out: TextIO) -> None:
    """Raises GatewayFailed where an object cannot hold two columns of one name."""
    head: dict[str, Any] = {"as_of": header.as_of, "export": header.export or None}
    if header.skipped_errors:
        head["skipped_errors"] = header.skipped_errors
    writer, count = document(output, header.column_names, header.column_types, head, out), 0
    for batch in (each for each in batches if each.num_rows):
        count += batch.num_rows
        writer.rows(list(zip(*map(values, batch.columns), strict=True)))
    writer.end()
    if output in ("table", "csv"):
        export = f" of {header.export}" if header.export else ""
        rows = "row" if count == 1 else "rows"
        print(f"({count} {rows}{export} as of {times.show(header.as_of)})", file=sys.stderr)
