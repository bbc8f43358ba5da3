"""Rows over HTTP, for webhooks and programs without gRPC: one POST is one transaction.

    POST /v1/namespaces/NAMESPACE/datasources/SOURCE/tables/TABLE/rows?operation=insert
    Authorization: Bearer TOKEN        a token for the audience tidemark-gateway
    Idempotency-Key: KEY               POSTs with one key are done once
    Content-Type: application/json     or x-ndjson, text/csv, vnd.apache.parquet

    200  {"table", "time", "rows", "repeated"}      429, 503  repeat it, with the same key; Retry-After says when
    400, 401, 403, 413, 415                         nothing was written
    500                                             without a key: the rows may be in the table

A body is at most BODY_BYTES_MAX, and is complete within a minute (http_body.py).
"""

from __future__ import annotations

from aiohttp import web

from tidemark_operator.errors import WriteUnknown
from tidemark_operator.gateway.admission.limits import Limits
from tidemark_operator.gateway.auth.access import Authenticator
from tidemark_operator.gateway.server.http_body import pieces
from tidemark_operator.gateway.server.http_server import HttpRefused, failure
from tidemark_operator.gateway.streams.insert import Inserts, WriteTarget

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

    def __init__(self, inserts: Inserts, door: Authenticator, limits: Limits) -> None:
        self._inserts, self._door, self._limits = inserts, door, limits

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_post(PATH, self._post)

    def close(self) -> None:
        pass

    async def _post(self, request: web.Request) -> web.Response:
        access = await self._door.authenticate(request.headers.get("Authorization", ""))
        async with self._limits.calls.hold(access.caller):
            try:
                written = await self._inserts.write(access, _target(request), pieces(request, BODY_BYTES_MAX, _INSTEAD))
            except WriteUnknown as error:
                return failure(error, 503 if request.headers.get("Idempotency-Key") else 500)
        answer = {"table": written.table, "time": written.time, "rows": written.rows, "repeated": written.repeated}
        return web.json_response(answer)


def _target(request: web.Request) -> WriteTarget:
    format = FORMATS.get(request.content_type)
    if format is None:
        raise HttpRefused(415, f"Content-Type {request.content_type!r:.80} is not one of {', '.join(FORMATS)}")
    path, query = request.match_info, request.query
    key = request.headers.get("Idempotency-Key", "")
    return WriteTarget(path["namespace"], path["source"], path["table"], query.get("operation", "insert"), format, key)
