"""`kubectl tidemark copy`: what a query or an export holds at one time, as files."""

from __future__ import annotations

import argparse
import json
from typing import Any, TextIO

from tidemark_cli import times
from tidemark_cli.gateway import Gateway, connected
from tidemark_protocol.copies import FORMATS
from tidemark_protocol.pb.gateway_pb2 import CopyRequest


def add_to(commands: Any) -> argparse.ArgumentParser:
    """The command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "copy",
        help="a query's rows as files",
        description="Writes what a query holds at one time to files in the instance's storage.",
    )
    parser.add_argument("subject", metavar="NAME|SQL", help="a table or export, or a SELECT")
    parser.add_argument("--to", required=True, metavar="LOCATION", help="a new folder, below that for copies")
    parser.add_argument("--format", required=True, choices=FORMATS)
    parser.add_argument("--as-of", metavar="TIME", help="as of this time (newest complete)")
    parser.add_argument("--instance", default="", help="where it runs, if there are several ComputeInstances")
    return parser


def asked(options: argparse.Namespace) -> CopyRequest:
    """Raises CliError for a time that is none."""
    return CopyRequest(
        namespace=options.namespace,
        subject=options.subject,
        instance=options.instance,
        as_of=times.parse(options.as_of) if options.as_of else None,
        to=options.to,
        format=options.format,
    )


def run(gateway: Gateway, request: CopyRequest, output: str, out: TextIO, seconds: float | None = None) -> None:
    """Waits for the files; Ctrl-C ends the copy where it runs, and so does the end of its time. Raises
    GatewayFailed."""
    with connected(gateway) as stub:
        call = stub.Copy.future(request, metadata=gateway.metadata, timeout=seconds)
        try:
            reply = call.result()
        except KeyboardInterrupt:
            call.cancel()
            raise
    if output == "json":
        print(json.dumps({"as_of": reply.as_of, "rows": reply.row_count, "location": reply.location}), file=out)
    else:
        rows = f"{reply.row_count} {'row' if reply.row_count == 1 else 'rows'}"
        print(f"{rows} as of {times.show(reply.as_of)} copied to {reply.location}", file=out)
