"""Calls that send rows to the replica that ingests a source: one piece of the body at a time.

header, piece, piece, ..., end ──► the replica ──► its answer, or the error that says whether to repeat the call
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from tidemark_operator.errors import OperatorError, QueryNotReady, QueryRefused, TooMany, WriteUnknown
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.wire.cancellation import is_canceled

IDLE_SECONDS = 60.0
"""A client that sends nothing for so long has gone."""
_ERRORS: dict[grpc.StatusCode, type[OperatorError]] = {
    grpc.StatusCode.FAILED_PRECONDITION: QueryNotReady,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooMany,
    grpc.StatusCode.ABORTED: WriteUnknown,
}


async def send_rows(
    running: RunningInstance, replica: ReplicaId, header: Any, pieces: AsyncIterator[bytes]
) -> compute_pb2.WriteRowsResponse:
    """The replica's answer to one call.

    Raises:
        QueryNotReady, TooMany: nothing was written, and the call may be repeated.
        QueryRefused: the replica takes no rows, or `pieces` did not go on.
        WriteUnknown: the replica was lost.
        Also the errors of `pieces`.
    """
    try:
        call = running.replicas[replica].connection.write_rows()
    except OperatorError as error:
        raise QueryNotReady(f"{error}: repeat the call") from None
    try:
        await _send(call, header, pieces)
        answer: compute_pb2.WriteRowsResponse = await call
        return answer
    except grpc.RpcError as error:
        raise _failure(replica, error) from None
    except asyncio.CancelledError:
        if is_canceled():
            raise
        raise _unknown(replica, "its connection was closed") from None  # the channel was closed under the call
    finally:
        call.cancel()


async def _send(call: Any, header: Any, pieces: AsyncIterator[bytes]) -> None:
    """Send the whole call, or as much of it as the replica takes before it answers."""
    size = 0
    try:
        await call.write(compute_pb2.WriteRowsRequest(header=header))
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise QueryRefused(f"the body did not go on for {IDLE_SECONDS:g} s: nothing is written") from None
            size += len(piece)
            await call.write(compute_pb2.WriteRowsRequest(data=piece))
        await call.write(compute_pb2.WriteRowsRequest(end=size))
        await call.done_writing()
    except (asyncio.InvalidStateError, grpc.RpcError):
        return  # the replica has answered: the answer says why


def _failure(replica: ReplicaId, error: Any) -> OperatorError:
    code = error.code()
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return QueryRefused(f"replica {replica} is of a version that takes no rows: give it a newer image")
    kind = _ERRORS.get(code)
    return _unknown(replica, f"{code.name}") if kind is None else kind(f"replica {replica}: {error.details()}")


def _unknown(replica: ReplicaId, why: str) -> WriteUnknown:
    return WriteUnknown(
        f"replica {replica} was lost before it answered ({why}): the rows are written once or not at all; repeat the "
        "call with the same key"
    )
