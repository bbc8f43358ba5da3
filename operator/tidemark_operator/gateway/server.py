"""The gateway's server: loopback only, every call with the token, answers in chunks as the client takes them.

    STATE/gateway.token    random, of mode 0600, new with each operator
    gateway.json           {"address": "127.0.0.1:40123", "tokenFile": "..."}: how a client finds it

A call that the client cancels is cancelled on the replicas. At most QUERIES answers are held at a time, each of at
most the instance's max_result_bytes.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from tidemark_operator.errors import OperatorError, PlannerUnavailable, QueryRefused
from tidemark_operator.gateway.explain import explain
from tidemark_operator.gateway.frontiers import frontiers
from tidemark_operator.gateway.queries import Query, prepare
from tidemark_operator.handlers.world import World
from tidemark_protocol.frames import GRPC_OPTIONS
from tidemark_protocol.pb import gateway_pb2, gateway_pb2_grpc
from tidemark_protocol.responses import PeekRows

LOG = logging.getLogger(__name__)
HOST = "127.0.0.1"
CHUNK_BYTES = 1024 * 1024
QUERIES = 4
CALLS = 64
STOP_SECONDS = 1.0


class Gateway(gateway_pb2_grpc.GatewayServicer):
    """`file`: where clients look; beside it, nothing else is written but the token in the state folder."""

    def __init__(self, world: World, state: Path, port: int, file: Path) -> None:
        self._world, self._state, self._port, self._file = world, state, port, file
        self._token = secrets.token_urlsafe(32)
        self._queries = asyncio.Semaphore(QUERIES)
        self._server = grpc.aio.server(options=GRPC_OPTIONS, maximum_concurrent_rpcs=CALLS)
        gateway_pb2_grpc.add_GatewayServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Listens, then says so. Raises OperatorError where the port is taken."""
        try:
            port = self._server.add_insecure_port(f"{HOST}:{self._port}")
        except RuntimeError:
            raise OperatorError(f"the gateway cannot listen on {HOST}:{self._port}: choose another port") from None
        await self._server.start()
        token = self._state / "gateway.token"
        write_private(token, self._token + "\n")
        write_private(self._file, json.dumps({"address": f"{HOST}:{port}", "tokenFile": str(token)}) + "\n")
        LOG.info("gateway on %s:%d", HOST, port)

    async def close(self) -> None:
        await self._server.stop(STOP_SECONDS)

    async def Query(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The header, then the Arrow stream in chunks."""
        await self._authenticate(context)
        as_of = request.as_of if request.HasField("as_of") else None
        async with self._queries:
            try:
                query = await prepare(self._world, request.namespace, request.sql, as_of, request.instance)
                result = await query.answer()
            except QueryRefused as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except PlannerUnavailable as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{error}; try again")
            if isinstance(result, PeekRows):
                yield gateway_pb2.QueryReply(header=_header(query))
                for chunk in _chunks(result):
                    yield gateway_pb2.QueryReply(arrow=chunk)
            else:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, result.message)

    async def Frontiers(self, request: Any, context: Any) -> Any:
        await self._authenticate(context)
        return frontiers(self._world, request.namespace, request.all_namespaces)

    async def Explain(self, request: Any, context: Any) -> Any:
        await self._authenticate(context)
        try:
            text = await explain(self._world, request.namespace, request.subject)
        except QueryRefused as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except PlannerUnavailable as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{error}; try again")
        return gateway_pb2.ExplainReply(text=text)

    async def _authenticate(self, context: Any) -> None:
        given = dict(context.invocation_metadata()).get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown token")


def _header(query: Query) -> Any:
    shown = query.peek.columns[: query.peek.finishing.shown]
    return gateway_pb2.QueryHeader(
        as_of=query.peek.timestamp,
        export=query.reads,
        column_names=[c.name for c in shown],
        column_types=[str(c.type) for c in shown],
    )


def _chunks(rows: PeekRows) -> list[bytes]:
    view = rows.data
    return [view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES)]


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, for this user alone."""
    new = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    os.replace(new, path)
