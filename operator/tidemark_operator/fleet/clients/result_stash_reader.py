"""Reads a large answer from the replica that keeps it, a piece at a time.

    replica: file ◄──FetchStash(offset)── here ──piece──► client        one piece is held, however large the answer is

An answer is lost with its replica: the reader receives AnswerLost, and asks again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from tidemark_operator.errors import AnswerLost, OperatorError
from tidemark_operator.fleet.running_instance import RunningInstance


async def stash_pieces(running: RunningInstance, uuid: str, size: int) -> AsyncIterator[bytes]:
    """The encoded rows of a stashed answer of `size` bytes; each piece is fetched when the caller wants it. Raises:
    AnswerLost."""
    offset = 0
    while offset < size:
        piece = await _fetch_piece(running, uuid, offset)
        offset += len(piece)
        yield piece


async def _fetch_piece(running: RunningInstance, uuid: str, offset: int) -> bytes:
    """The piece of a stashed answer that begins at the offset. Raises AnswerLost."""
    keeper = running.core.peeks.keeper(uuid)
    if keeper is None or keeper not in running.replicas:
        raise AnswerLost("the replica that keeps the answer was lost while the client read it: ask again")
    try:
        piece = await running.replicas[keeper].connection.fetch(uuid, offset)
    except (grpc.RpcError, OperatorError):
        raise AnswerLost(
            f"replica {keeper}, which keeps the answer, was lost while the client read it: ask again"
        ) from None
    if not piece:
        raise AnswerLost(f"replica {keeper} keeps less of the answer than it reported: ask again")
    return piece
