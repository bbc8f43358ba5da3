"""`kubectl tidemark query`: one statement to the gateway, its rows to the terminal as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

import pyarrow as pa

from tidemark_cli import times
from tidemark_cli.errors import GatewayFailed
from tidemark_cli.gateway import Gateway, connected
from tidemark_cli.table import Table, printable
from tidemark_cli.values import cell, plain, values
from tidemark_protocol.pb.gateway_pb2 import QueryHeader, QueryReply, QueryRequest


def run(gateway: Gateway, request: QueryRequest, output: str, out: TextIO, seconds: float | None = None) -> None:
    """Asks, and prints the answer; Ctrl-C cancels the query where it runs, and so does the end of its time. Raises
    GatewayFailed."""
    with connected(gateway) as stub:
        call = stub.Query(request, metadata=gateway.metadata, timeout=seconds)
        try:
            header, batches = _answer(call)
            (_print_json if output == "json" else _print_table)(header, batches, out)
        except KeyboardInterrupt:
            call.cancel()
            raise


def _answer(replies: Iterator[QueryReply]) -> tuple[QueryHeader, Iterator[pa.RecordBatch]]:
    first = next(replies, None)
    if first is None or first.WhichOneof("part") != "header":
        raise GatewayFailed("the gateway's answer has no header: operator and command line are of different versions")
    return first.header, _batches(replies)


def _batches(replies: Iterable[QueryReply]) -> Iterator[pa.RecordBatch]:
    """The record batches of the Arrow stream, each as soon as its bytes are here."""
    with pa.ipc.open_stream(_Chunks(reply.arrow for reply in replies)) as stream:
        yield from stream


class _Chunks:
    """A readable file over the chunks of the stream."""

    closed = False

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._rest += chunk
        taken, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return taken

    def close(self) -> None:
        self.closed = True


def _print_table(header: QueryHeader, batches: Iterator[pa.RecordBatch], out: TextIO) -> None:
    table = Table([printable(n) for n in header.column_names], list(map(is_number, header.column_types)))
    count = 0
    for batch in (each for each in batches if each.num_rows):
        count += batch.num_rows
        columns = [[cell(v) for v in values(column)] for column in batch.columns]
        print(*table.block(list(zip(*columns, strict=True))), sep="\n", file=out)
    if not count:
        print(*table.block([]), sep="\n", file=out)
    of = f" of {header.export}" if header.export else ""
    said = f"({count} {'row' if count == 1 else 'rows'}{of} as of {times.show(header.as_of)})"
    print(said, file=sys.stderr)


def is_number(type: str) -> bool:
    """Whether columns of the type are shown to the right."""
    return type.startswith(("int", "bigint", "smallint", "tinyint", "float", "double", "decimal"))


def _print_json(header: QueryHeader, batches: Iterator[pa.RecordBatch], out: TextIO) -> None:
    """One object: the time, and the rows. Raises GatewayFailed where two columns are called the same."""
    names = list(header.column_names)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise GatewayFailed(f"JSON has one value for a name, and two columns are called {twice}: rename one with AS")
    print(f'{{"as_of": {header.as_of}, "export": {json.dumps(header.export or None)}, "rows": [', file=out, end="")
    separator = "\n"
    for batch in batches:
        for row in zip(*map(values, batch.columns), strict=True):
            print(separator, json.dumps(plain(dict(zip(names, row, strict=True)))), sep="", end="", file=out)
            separator = ",\n"
    print("\n]}", file=out)
