"""Rows over HTTP, for webhooks and programs without gRPC: one POST is one transaction.

    POST /v1/namespaces/NAMESPACE/datasources/SOURCE/tables/TABLE/rows?operation=insert
    Authorization: Bearer TOKEN        a token for the audience tidemark-gateway
    Idempotency-Key: KEY               POSTs with one key are done once
    Content-Type: application/json     or x-ndjson, text/csv, vnd.apache.parquet

    200  {"table", "time", "rows", "repeated"}      429, 503  repeat it, with the same key; Retry-After says when
    400, 401, 403, 413, 415  {"error"}              nothing was written
    500                      {"error"}              without a key: the rows may be in the table

A body is at most BODY_BYTES_MAX, and is complete within BODY_SECONDS. Tokens are in no log: requests are not logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable

from aiohttp import ClientError, web

from tidemark_operator.errors import OperatorError, QueryNotReady, QueryRefused, TooMany, WriteUnknown
from tidemark_operator.gateway.admission.limits import Limits
from tidemark_operator.gateway.auth.access import Authenticator, Forbidden, ReviewUnavailable, Unauthenticated
from tidemark_operator.gateway.streams.insert import Inserts, WriteTarget
from tidemark_protocol.tls.folder import Material

LOG = logging.getLogger(__name__)
BODY_BYTES_MAX, BODY_SECONDS, PIECE_BYTES = 8 << 20, 60.0, 256 << 10
KEEPALIVE_SECONDS, RENEWAL_SECONDS, STOP_SECONDS = 30.0, 60.0, 1.0
PATH = "/v1/namespaces/{namespace}/datasources/{source}/tables/{table}/rows"
FORMATS = {
    "application/json": "json",
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
}


class BodyTooLarge(OperatorError):
    """A body of more than BODY_BYTES_MAX."""


class UnknownContentType(OperatorError):
    """A Content-Type that is not among FORMATS."""


_STATUS: tuple[tuple[type[OperatorError], int], ...] = (
    (TooMany, 429),
    (BodyTooLarge, 413),
    (UnknownContentType, 415),
    (QueryNotReady, 503),
    (ReviewUnavailable, 503),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (QueryRefused, 400),
)


class HttpRows:
    """`material`: the certificate and key, read anew again and again; None: plain HTTP, on loopback."""

    def __init__(
        self, inserts: Inserts, door: Authenticator, limits: Limits, material: Callable[[], Material] | None
    ) -> None:
        self._inserts, self._door, self._limits, self._material = inserts, door, limits, material
        self._runner: web.AppRunner | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises OperatorError where the port is taken or the certificate is unreadable."""
        app = web.Application()
        app.router.add_post(PATH, self._post)
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS, shutdown_timeout=STOP_SECONDS
        )
        await self._runner.setup()
        context = None if self._material is None else self._context(self._material)
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=context).start()
        except OSError as error:
            raise OperatorError(f"the gateway cannot serve HTTP on {host}:{port}: {error.strerror}") from None
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening; calls that run are cancelled after STOP_SECONDS."""
        if self._renewal is not None:
            self._renewal.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _post(self, request: web.Request) -> web.Response:
        try:
            access = await self._door.authenticate(request.headers.get("Authorization", ""))
            async with self._limits.calls.hold(access.caller):
                written = await self._inserts.write(access, _target(request), _body(request))
        except WriteUnknown as error:
            return _failed(503 if request.headers.get("Idempotency-Key") else 500, error)
        except OperatorError as error:
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
            return _failed(status, error)
        answer = {"table": written.table, "time": written.time, "rows": written.rows, "repeated": written.repeated}
        return web.json_response(answer)

    def _context(self, material: Callable[[], Material]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load(context, first := material())
        self._renewal = asyncio.create_task(_renewed(context, material, first), name="certificate of HTTP")
        return context


def _failed(status: int, error: OperatorError) -> web.Response:
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    return web.json_response({"error": str(error)}, status=status, headers=headers)


def _target(request: web.Request) -> WriteTarget:
    format = FORMATS.get(request.content_type)
    if format is None:
        raise UnknownContentType(f"Content-Type {request.content_type!r:.80} is not one of {', '.join(FORMATS)}")
    path, query = request.match_info, request.query
    key = request.headers.get("Idempotency-Key", "")
    return WriteTarget(path["namespace"], path["source"], path["table"], query.get("operation", "insert"), format, key)


async def _body(request: web.Request) -> AsyncIterator[bytes]:
    """The pieces of a body. Raises BodyTooLarge; QueryRefused where it is not complete in time."""
    size, until = 0, asyncio.get_running_loop().time() + BODY_SECONDS
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise _too_large()
    try:
        while True:
            async with asyncio.timeout_at(until):
                piece = await request.content.read(PIECE_BYTES)
            if not piece:
                return
            size += len(piece)
            if size > BODY_BYTES_MAX:
                raise _too_large()
            yield piece
    except TimeoutError:
        raise QueryRefused(f"the body was not complete within {BODY_SECONDS:g} s: nothing is written") from None
    except (ClientError, ConnectionError):
        raise QueryRefused("the body broke off: nothing is written") from None


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(
        f"a body has at most {BODY_BYTES_MAX} bytes over HTTP: divide it, or use kubectl tidemark insert"
    )


async def _renewed(context: ssl.SSLContext, material: Callable[[], Material], loaded: Material) -> None:
    """Give new connections the present certificate, until cancelled."""
    while True:
        await asyncio.sleep(RENEWAL_SECONDS)
        try:
            now = material()
            if now != loaded:
                _load(context, now)
                loaded = now
        except OperatorError as error:
            LOG.error("HTTP keeps its previous certificate, the new one cannot be read: %s", error)


def _load(context: ssl.SSLContext, material: Material) -> None:
    """Python's ssl loads files alone: the key is in one that is in memory. Raises OperatorError."""
    file = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as out:
            out.write(material.certificate + b"\n" + material.key)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    except ssl.SSLError as error:
        raise OperatorError(f"the gateway's certificate and key do not fit HTTP: {error.reason}") from None
    finally:
        with contextlib.suppress(OSError):
            os.close(file)
