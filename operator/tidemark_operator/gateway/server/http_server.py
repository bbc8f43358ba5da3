"""The gateway's HTTP: its port, its certificate, and the answer to each error.

    http_rows     rows into tables
    http_reads    queries and subscribes

    4xx, 5xx  {"error": TEXT, "reason": NAME}      NAME: that of gRPC's status (status.py); 429, 503: Retry-After

Tokens and statements are in no log: requests are not logged, and neither is what is wrong with one that is no HTTP.
There are no CORS headers, so that a browser lets no page of another origin read an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Iterable
from typing import Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from tidemark_operator.errors import OperatorError
from tidemark_operator.gateway.server.status import status_of
from tidemark_protocol.tls.folder import Material

LOG = logging.getLogger(__name__)
FAILURES = logging.getLogger(f"{__name__}.failures")
"""The log of failures in aiohttp and in handlers."""
KEEPALIVE_SECONDS, RENEWAL_SECONDS, STOP_SECONDS = 30.0, 60.0, 1.0
RETRY_SECONDS = "1"
_REASONS = {404: "NOT_FOUND", 405: "UNIMPLEMENTED"}
"""The reasons in answers that aiohttp gives by itself, by HTTP status."""


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a failure is not that of a request that is no HTTP: those have parts of it in their text, such as its
    token, and anybody may send as many as they like. The client is told."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


FAILURES.addFilter(_is_ours)


class HttpRefused(OperatorError):
    """HTTP has a status of its own for what is wrong with a request; gRPC has no such requests."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class HttpPart(Protocol):
    """Some of the paths."""

    def add_to(self, router: web.UrlDispatcher) -> None: ...

    def close(self) -> None:
        """Nothing is served any more."""


class HttpServer:
    """`material`: the certificate and key, read anew again and again; None: plain HTTP, on loopback."""

    def __init__(self, parts: Iterable[HttpPart], material: Callable[[], Material] | None) -> None:
        self._parts, self._material = tuple(parts), material
        self._runner: web.AppRunner | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises OperatorError where the port is taken or the certificate is unreadable."""
        app = web.Application(middlewares=[_errors_as_json])
        for part in self._parts:
            part.add_to(app.router)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=FAILURES,
            keepalive_timeout=KEEPALIVE_SECONDS,
            shutdown_timeout=STOP_SECONDS,
            handler_cancellation=True,  # a read of a client that is gone ends on the replicas
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
        for part in self._parts:
            part.close()

    def _context(self, material: Callable[[], Material]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load(context, first := material())
        self._renewal = asyncio.create_task(_renewed(context, material, first), name="certificate of HTTP")
        return context


def failure(error: OperatorError, status: int | None = None) -> web.Response:
    """The answer to a call that failed. `status`: another one than the error's own."""
    known = status_of(error)
    if isinstance(error, HttpRefused):
        status = error.status
    elif status is None:
        status = 500 if known is None else known.http
    headers = {"Retry-After": RETRY_SECONDS} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return web.json_response(as_json(error), status=status, headers=headers)


def as_json(error: OperatorError) -> dict[str, str]:
    """The error as an object of JSON."""
    if isinstance(error, HttpRefused):
        return {"error": str(error), "reason": "INVALID_ARGUMENT"}
    if (known := status_of(error)) is None:
        return {"error": str(error), "reason": "INTERNAL"}
    return {"error": f"{error}{known.advice}", "reason": known.grpc.name}


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except OperatorError as error:
        return failure(error)
    except web.HTTPException as error:
        headers = {name: value for name, value in error.headers.items() if name == "Allow"}
        named = {
            "error": f"{request.method} {request.path}: {error.reason}",
            "reason": _REASONS.get(error.status, "INVALID_ARGUMENT"),
        }
        return web.json_response(named, status=error.status, headers=headers)


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
