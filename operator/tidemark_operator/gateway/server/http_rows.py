"""Rows over HTTP, for webhooks and programs without gRPC: one POST is one transaction.

    POST /v1/namespaces/NAMESPACE/datasources/SOURCE/tables/TABLE/rows?operation=insert
    Authorization: Bearer TOKEN        a token for the audience tidemark-gateway
    Idempotency-Key: KEY               POSTs with one key are done once
    Content-Type: application/json     or x-ndjson, text/csv, vnd.apache.parquet

    200  {"table", "time", "rows", "repeated"}      429, 503  repeat it, with the same key; Retry-After says when
    400, 401, 403, 413, 415                         nothing was written
    500                                             without a key: the rows may be in the table

A body is at most BODY_BYTES_MAX, and is complete within a minute (http_body.py). Once it is complete it is written,
also where the client goes before it has the answer: a webhook that waits for no answer loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from tidemark_operator.errors import WriteUnknown
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.access import Access, Authenticator
from tidemark_operator.gateway.server.http_body import body_pieces
from tidemark_operator.gateway.server.http_server import HttpRefused, failure
from tidemark_operator.gateway.streams.insert import Inserts, WriteTarget
from tidemark_protocol.pb.gateway_pb2 import InsertReply

BODY_BYTES_MAX = 8 << 20
_INSTEAD = "divide it, or use kubectl tidemark insert"
PATH = "/v1/namespaces/{namespace}/datasources/{source}/tables/{table}/rows"
FORMATS = {
    "application/json": "json",
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
}


class HttpRows:
    """The paths for rows."""

    def __init__(self, inserts: Inserts, authenticator: Authenticator, limits: GatewayLimits) -> None:
        self._inserts, self._authenticator, self._limits = inserts, authenticator, limits
        self._writes = set[asyncio.Task[InsertReply]]()

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_post(PATH, self._post)

    def close(self) -> None:
        for write in self._writes:
            write.cancel()

    async def _post(self, request: web.Request) -> web.Response:
        access = await self._authenticator.authenticate(request.headers.get("Authorization", ""), passwords=False)
        body = _Body(body_pieces(request, BODY_BYTES_MAX, _INSTEAD))
        write = asyncio.create_task(self._write(access, _target(request), body), name="rows over HTTP")
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        try:
            written = await asyncio.shield(write)
        except WriteUnknown as error:
            return failure(error, 503 if request.headers.get("Idempotency-Key") else 500)
        except asyncio.CancelledError:
            if not body.is_complete:
                write.cancel()
            raise
        answer = {"table": written.table, "time": written.time, "rows": written.rows, "repeated": written.repeated}
        return web.json_response(answer)

    async def _write(self, access: Access, target: WriteTarget, body: _Body) -> InsertReply:
        async with self._limits.calls.hold(access.caller):
            return await self._inserts.write(access, target, body.pieces())


class _Body:
    """The body of one POST. `is_complete`: the last piece was taken."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces, self.is_complete = pieces, False

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            yield piece
        self.is_complete = True


def _target(request: web.Request) -> WriteTarget:
    format = FORMATS.get(request.content_type)
    if format is None:
        raise HttpRefused(415, f"Content-Type {request.content_type!r:.80} is not one of {', '.join(FORMATS)}")
    path, query = request.match_info, request.query
    key = request.headers.get("Idempotency-Key", "")
    return WriteTarget(path["namespace"], path["source"], path["table"], query.get("operation", "insert"), format, key)
