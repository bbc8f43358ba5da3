"""An answer of the gateway that is read: of a call of its own, or of the stream of queries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Any

import grpc

from tidemark_pgwire.errors import WireError
from tidemark_pgwire.gateway_errors import CODES, call_errors, refusal
from tidemark_pgwire.query_stream import StreamedQuery, StreamLost

_UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]


class CallReading:
    """The answer of a call of its own."""

    first, is_whole = b"", False

    def __init__(self, header: Any, call: Any, held: AsyncExitStack) -> None:
        self.header, self._call, self._held = header, call, held

    async def further_pieces(self) -> AsyncIterator[bytes]:
        """The pieces after the first one. Raises WireError."""
        with call_errors():
            while (reply := await self._call.read()) is not grpc.aio.EOF:
                yield reply.arrow

    async def close(self) -> None:
        """Read no more."""
        await self._held.aclose()


class StreamReading:
    """An answer of the stream of a channel. `held`: entered until it is closed; `lost`: the error where the stream
    ends; `sql`: the statement, for positions."""

    header: Any = None
    first, is_whole = b"", False

    def __init__(
        self, query: StreamedQuery, held: AbstractContextManager[Any], lost: Callable[[], WireError], sql: str
    ) -> None:
        self._query, self._held, self._lost, self._sql = query, held, lost, sql
        held.__enter__()

    async def begin(self) -> bool:
        """Read the first piece; whether there is one: the stream may have ended. Raises WireError."""
        try:
            piece = await self._query.next_piece()
        except StreamLost:
            return False
        if piece.HasField("failure") and piece.failure.code == _UNAVAILABLE:
            return False
        self._check(piece)
        self.header, self.first, self.is_whole = piece.header, piece.arrow, piece.last
        return True

    async def further_pieces(self) -> AsyncIterator[bytes]:
        whole = self.is_whole
        while not whole:
            try:
                piece = await self._query.next_piece()
            except StreamLost:
                raise self._lost() from None
            self._check(piece)
            whole = piece.last
            yield piece.arrow

    async def close(self) -> None:
        self._query.close()
        self._held.__exit__(None, None, None)

    def _check(self, piece: Any) -> None:
        if piece.HasField("failure"):
            failed = piece.failure
            raise refusal(CODES[failed.code], failed.message, failed.sqlstate, failed.position, self._sql)


QueryReading = CallReading | StreamReading
"""An answer that is read. `first`: the bytes of its Arrow stream that have come with the header; `is_whole`: there are
no more."""
