"""The gateway's replies as Arrow: the answer of a query, the batches of a subscribe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from tidemark.errors import GatewayFailed
from tidemark_protocol.pb.gateway_pb2 import QueryHeader, QueryReply, SubscribeBatch


def read_header(replies: Iterator[QueryReply], describe: Callable[[str], None] = lambda place: None) -> QueryHeader:
    """The header, after which `replies` has the rows. `describe` receives the query's place in the gateway's queue
    while it waits. Raises GatewayFailed where that is no answer."""
    first = next(replies, None)
    while first is not None and first.WhichOneof("part") == "waiting":
        describe(first.waiting)
        first = next(replies, None)
    if first is None or first.WhichOneof("part") != "header":
        raise GatewayFailed("the gateway's answer has no header: operator and client are of different versions")
    return first.header


def open_rows(replies: Iterable[QueryReply]) -> pa.RecordBatchReader:
    """The record batches, each as soon as its bytes have arrived."""
    return pa.ipc.open_stream(_Chunks(reply.arrow for reply in replies))


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


def complete(messages: Iterator[SubscribeBatch]) -> Iterator[tuple[SubscribeBatch, bytes]]:
    """Batches with the bytes of each, which may come in several messages."""
    data = bytearray()
    for message in messages:
        data += message.arrow
        if not message.more:
            yield message, bytes(data)
            data.clear()
