"""WriteRows: the calls of clients that write rows. Each has a thread until its tick has passed.

    header, data, data, ..., end ──► received (storage/written) ──► waits for its tick ──► time, or a refusal
    no end                       ──► nothing is written

The number of calls is bounded; one more is refused at once, and its client repeats it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import grpc

from tidemark_persist import PersistError
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_replica.storage.ingestion_threads import ReceivedCall
from tidemark_replica.storage.written.inbox import WriteAnswer
from tidemark_replica.storage.written.receive import CallPart, WriteHeader
from tidemark_replica.storage.written.refusal import BAD_REQUEST, WriteNotPossible, WriteRefused, WriteUnknown
from tidemark_replica.values.failure_text import log_text, public_text

LOG = logging.getLogger(__name__)
WRITES_MAX = 64
LOOK_SECONDS = 1.0
"""The pause between two looks of a waiting call whether its client is still there."""
Write = Callable[[GlobalId, WriteHeader, Iterable[bytes]], ReceivedCall]


class Incomplete(Exception):
    """The stream ended before the body."""


class WriteCalls:
    """`write`: receives one call."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._free = threading.BoundedSemaphore(WRITES_MAX)

    def serve(self, requests: Iterator[pb.WriteRowsRequest], context: Any) -> pb.WriteRowsResponse:
        """The response to one call. Its status says whether to repeat it: FAILED_PRECONDITION, RESOURCE_EXHAUSTED
        (nothing was written), ABORTED (unknown)."""
        if not self._free.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WRITES_MAX} calls write already; repeat it later")
        try:
            return self._answer(requests, context)
        except WriteRefused as refusal:
            return pb.WriteRowsResponse(refusal=str(refusal))
        except WriteNotPossible as error:
            full = grpc.StatusCode.RESOURCE_EXHAUSTED
            context.abort(full if error.full else grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise
        except WriteUnknown as error:
            context.abort(grpc.StatusCode.ABORTED, str(error))
            raise
        except Incomplete as error:
            context.abort(grpc.StatusCode.CANCELLED, str(error))
            raise
        except (OSError, PersistError) as error:
            LOG.warning("a call that writes rows failed: %s", log_text(error))
            text = f"the rows could not be received: {public_text(error)}; repeat the call"
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
            raise
        finally:
            self._free.release()

    def _answer(self, requests: Iterator[pb.WriteRowsRequest], context: Any) -> pb.WriteRowsResponse:
        first = next(_read(requests), None)
        if first is None or first.WhichOneof("part") != "header":
            raise WriteRefused(BAD_REQUEST, "the first message of a call is its header")
        asked = first.header
        pending = self._write(GlobalId(asked.ingestion), _header(asked), _body_pieces(requests))
        answer: WriteAnswer | None = None
        while answer is None:
            if not context.is_active():
                pending.abandon()
                raise Incomplete("the client is gone")
            answer = pending.answer(LOOK_SECONDS)
        return pb.WriteRowsResponse(time=answer.time, rows=answer.rows, repeated=answer.repeated)


def _header(asked: pb.WriteRowsHeader) -> WriteHeader:
    """Raises WriteRefused."""
    if not asked.tables:
        parts = _call_parts(asked.sections)
        return WriteHeader(asked.table, asked.operation, asked.format, asked.key, asked.must_find, parts)
    if asked.table or asked.operation or asked.sections or asked.must_find:
        raise WriteRefused(BAD_REQUEST, "a call is of one table, or says of each of its tables what is done with it")
    first, *others = (
        WriteHeader(
            each.table, each.operation, asked.format, asked.key, each.must_find, _call_parts(each.sections), each.size
        )
        for each in asked.tables
    )
    return replace(first, others=tuple(others))


def _call_parts(sections: Iterable[pb.WriteRowsSection]) -> tuple[CallPart, ...]:
    """The parts of a call, one for each section of its rows."""
    return tuple(CallPart(each.operation, each.rows, tuple(each.changed)) for each in sections)


def _body_pieces(requests: Iterator[pb.WriteRowsRequest]) -> Iterator[bytes]:
    """Yield the body of a call in pieces. Raises Incomplete where the end of the body does not come, WriteRefused."""
    size = 0
    for request in _read(requests):
        part = request.WhichOneof("part")
        if part == "end":
            if request.end != size:
                raise Incomplete(f"the body has {size} bytes, and should have {request.end}")
            return
        if part != "data":
            raise WriteRefused(BAD_REQUEST, "a call has one header, pieces of its body, and the end")
        size += len(request.data)
        yield request.data
    raise Incomplete("the stream ended before the body")


def _read(requests: Iterator[pb.WriteRowsRequest]) -> Iterator[pb.WriteRowsRequest]:
    """gRPC raises a bare Exception where a stream breaks off."""
    try:
        yield from requests
    except Exception:
        raise Incomplete("the stream broke off") from None
