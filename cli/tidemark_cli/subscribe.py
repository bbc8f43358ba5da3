"""`kubectl tidemark subscribe`: what a query or an export holds, then every change to it, as it happens.

__time                    __diff  carrier  flights
2026-01-31T12:00:00.000Z       1  UA         58665
2026-01-31T12:00:01.000Z      -1  UA         58665
2026-01-31T12:00:01.000Z       1  UA         58666
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_cli import times
from tidemark_cli.errors import GatewayFailed
from tidemark_cli.gateway import Gateway, connected
from tidemark_cli.query import is_number
from tidemark_cli.table import Table, printable
from tidemark_cli.values import cell, plain, values
from tidemark_protocol.pb.gateway_pb2 import SubscribeBatch, SubscribeHeader, SubscribeReply, SubscribeRequest

TIME, DIFF, PART = "__time", "__diff", "__part"


def add_to(commands: Any) -> argparse.ArgumentParser:
    """The command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "subscribe",
        help="a query, and then every change to it",
        description="What a query holds, then every change to it, until Ctrl-C.",
    )
    parser.add_argument("subject", metavar="NAME|SQL", help="a table or export, or a SELECT")
    parser.add_argument("--as-of", metavar="TIME", help="begin at this time (newest complete)")
    parser.add_argument("--up-to", metavar="TIME", help="end with the last change before this time")
    parser.add_argument(
        "--snapshot", action=argparse.BooleanOptionalAction, default=True, help="begin with what is there"
    )
    parser.add_argument("--progress", action="store_true", help="tell also up to when all changes have been told")
    parser.add_argument("--instance", default="", help="where it runs, if there are several ComputeInstances")
    parser.add_argument("--replica", default="", help="the one that tells it, and with which it ends (any)")
    return parser


def asked(options: argparse.Namespace) -> SubscribeRequest:
    """Raises CliError for a time that is none."""
    return SubscribeRequest(
        namespace=options.namespace,
        subject=options.subject,
        instance=options.instance,
        as_of=times.parse(options.as_of) if options.as_of else None,
        up_to=times.parse(options.up_to, "--up-to") if options.up_to else None,
        without_snapshot=not options.snapshot,
        progress=options.progress,
        replica=options.replica,
    )


def run(gateway: Gateway, request: SubscribeRequest, output: str, out: TextIO) -> None:
    """Until the last change, or Ctrl-C, which ends it where it runs. Raises GatewayFailed."""
    with connected(gateway) as stub:
        call = stub.Subscribe(request, metadata=gateway.metadata)
        try:
            _show(call, request.progress, output, out)
        except KeyboardInterrupt:
            call.cancel()
            raise


def _show(replies: Iterator[SubscribeReply], progress: bool, output: str, out: TextIO) -> None:
    first = next(replies, None)
    if first is None or first.WhichOneof("part") != "header":
        raise GatewayFailed("the gateway's answer has no header: operator and command line are of different versions")
    shown = (_Lines if output == "json" else _Rows)(first.header, out)
    for batch, data in whole(reply.batch for reply in replies):
        if data:
            shown.updates(told_now(batch, pa.ipc.open_stream(data).read_all()))
        if progress:
            shown.progress(batch.upper)
        out.flush()
    print("(finished)", file=sys.stderr)


def whole(messages: Iterator[SubscribeBatch]) -> Iterator[tuple[SubscribeBatch, bytes]]:
    """Batches, and the bytes of each, which may come in several messages."""
    data = bytearray()
    for message in messages:
        data += message.arrow
        if not message.more:
            yield message, bytes(data)
            data.clear()


def told_now(batch: SubscribeBatch, updates: pa.Table) -> pa.Table:
    """Without what was told before: another replica's stream may begin earlier."""
    time, part = updates.column(TIME), updates.column(PART)
    lower, lower_part = pa.scalar(batch.lower, pa.int64()), pa.scalar(batch.lower_part, pa.uint64())
    later = pc.or_(pc.greater(time, lower), pc.and_(pc.equal(time, lower), pc.greater_equal(part, lower_part)))
    return updates if pc.all(later).as_py() else updates.filter(later)


class _Rows:
    """As a table."""

    def __init__(self, header: SubscribeHeader, out: TextIO) -> None:
        names = [TIME, DIFF, *map(printable, header.column_names)]
        self._table, self._out = Table(names, [False, True, *map(is_number, header.column_types)]), out
        print(f"(from {times.show(header.as_of)})", file=sys.stderr)

    def updates(self, updates: pa.Table) -> None:
        for batch in updates.to_batches():
            columns = [[cell(v) for v in values(column)] for column in batch.columns[:-3]]
            at = [times.show(t) for t in batch.column(TIME).to_pylist()]
            rows = list(zip(at, map(str, batch.column(DIFF).to_pylist()), *columns, strict=True))
            print(*self._table.block(rows), sep="\n", file=self._out)

    def progress(self, upper: int) -> None:
        print(f"(complete before {times.show(upper)})", file=sys.stderr)


class _Lines:
    """One JSON object per line; decimals, dates and times as text, so that nothing is rounded."""

    def __init__(self, header: SubscribeHeader, out: TextIO) -> None:
        self._names, self._out = list(header.column_names), out

    def updates(self, updates: pa.Table) -> None:
        for batch in updates.to_batches():
            columns = [batch.column(TIME), batch.column(DIFF), *batch.columns[:-3]]
            for row in zip(*map(values, columns), strict=True):
                self._print(dict(zip([TIME, DIFF, *self._names], row, strict=True)))

    def progress(self, upper: int) -> None:
        self._print({"__progress": None if upper == times.EMPTY else upper})

    def _print(self, line: dict[str, Any]) -> None:
        print(json.dumps(plain(line)), file=self._out)
