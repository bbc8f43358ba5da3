"""The body of a request, in pieces, with bounds on its size and on the time that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import ClientError, web

from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.server.http_server import HttpRefused

BODY_SECONDS, PIECE_BYTES = 60.0, 256 << 10


async def body_pieces(request: web.Request, most: int, instead: str) -> AsyncIterator[bytes]:
    """`most`: bytes of the body; `instead`: what to do with a larger one.

    Raises:
        HttpRefused: the body is too large.
        QueryRefused: it is not complete in time.
    """
    size, until = 0, asyncio.get_running_loop().time() + BODY_SECONDS
    too_large = HttpRefused(413, f"a body has at most {most} bytes over HTTP: {instead}")
    if (request.content_length or 0) > most:
        raise too_large
    try:
        while True:
            async with asyncio.timeout_at(until):
                piece = await request.content.read(PIECE_BYTES)
            if not piece:
                return
            size += len(piece)
            if size > most:
                raise too_large
            yield piece
    except TimeoutError:
        raise QueryRefused(f"the body was not complete within {BODY_SECONDS:g} s: nothing is done") from None
    except (ClientError, ConnectionError):
        raise QueryRefused("the body broke off: nothing is done") from None
