"""Queries and subscribes over HTTP, for browsers, curl and programs without gRPC, by the code that answers gRPC.

    GET, POST /v1/query?namespace=NAMESPACE&sql=SELECT...      one answer; a POST has the SQL in its body
    GET       /v1/subscribe?namespace=NAMESPACE&subject=NAME   the rows, then their changes, until the client goes
    Authorization: Bearer TOKEN        a token for the audience tidemark-gateway
    Accept: TYPE                       one of http_text.py; the first that is known counts
    Last-Event-ID: TIME.FINGERPRINT    of a subscribe: go on after this time, where it still reads the same relations

    call ──► Queries, Subscribes (streams/) ──► Arrow ──► text, in a thread ──► the client, as it takes it

Rights, limits and deadlines are those of gRPC: there is no other way to an answer. The memory of an answer is a part
of http_text.py, and the record batch that it is of; answers that do not fit a message are sent `TEXTS` at a time
(admission/limits.py). A client that goes away ends its call at once.

An error that comes before the first byte has its status (status.py). Later it is the last line or event, and the
connection ends without the end of the body, so that no client takes a part for the whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa
from aiohttp import HttpVersion11, web

from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.errors import OperatorError, QueryRefused, SubscribeVoid
from tidemark_operator.gateway.admission.fair_queue import FairQueue
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.access import Access, Authenticator
from tidemark_operator.gateway.query.query import QueryRequest
from tidemark_operator.gateway.query.statement_shape import SPARK
from tidemark_operator.gateway.server import http_body
from tidemark_operator.gateway.server.http_server import HttpRefused, as_json
from tidemark_operator.gateway.server.http_text import (
    EVENTS,
    LAST_ID,
    QUERY_TEXTS,
    SUBSCRIBE_TEXTS,
    VOID_ID,
    QueryText,
    SubscribeText,
    slices,
)
from tidemark_operator.gateway.streams.answer_stream import CHUNK_SECONDS
from tidemark_operator.gateway.streams.query_answer import Queries, QueryAnswer
from tidemark_operator.gateway.streams.subscribe import Subscribes, fingerprint
from tidemark_protocol import tracing
from tidemark_protocol.errors import BatchTooLarge
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import MAX_SQL_CHARACTERS
from tidemark_protocol.pb.gateway_pb2 import SubscribeRequest
from tidemark_protocol.rows.arrow_batches import ArrowBatches
from tidemark_protocol.rows.updates import unseen
from tidemark_protocol.times import parse
from tidemark_protocol.types import Column

T = TypeVar("T")
K = TypeVar("K")
X = TypeVar("X", QueryText, SubscribeText)
QUERY_PATH, SUBSCRIBE_PATH = "/v1/query", "/v1/subscribe"
QUERY_PARAMETERS = ("namespace", "sql", "as_of", "strict", "instance", "replica", "skip_errors", "dialect")
SUBSCRIBE_PARAMETERS = ("namespace", "subject", "as_of", "up_to", "snapshot", "progress", "instance", "replica")
BEAT_SECONDS = 15.0
"""A proxy that ends connections on which nothing comes waits longer, most likely."""
_TRUE, _FALSE = ("true", "1", ""), ("false", "0")
_CHANGED = (
    "what the subscribe reads is not what it was at the last event (another revision, made again, or changed by "
    "another program), so its changes are none of the rows that the client has: begin without Last-Event-ID, with the "
    "rows"
)
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_VANISHED = ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 2))
"""Seconds, seconds and probes, after which a client is gone that said nothing of it."""


class HttpReads:
    """Serves the paths of queries and subscribes."""

    def __init__(
        self, queries: Queries, subscribes: Subscribes, authenticator: Authenticator, limits: GatewayLimits
    ) -> None:
        self._queries, self._subscribes, self._authenticator, self._limits = queries, subscribes, authenticator, limits
        self._texts = ThreadPoolExecutor(1, thread_name_prefix="rows as text")

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get(QUERY_PATH, self._query, allow_head=False)
        router.add_post(QUERY_PATH, self._query)
        router.add_get(SUBSCRIBE_PATH, self._subscribe, allow_head=False)

    def close(self) -> None:
        self._texts.shutdown(wait=False, cancel_futures=True)

    async def _query(self, request: web.Request) -> web.StreamResponse:
        _require_chunks(request)
        text, type = _accepted(request, QUERY_TEXTS)
        access = await self._admit(request)
        async with self._limits.calls.hold(access.caller):
            traced = request.headers.get(tracing.HEADER, "")
            asked = replace(await _query_request(request), trace_context=traced)
            client = HttpQuery(HttpReply(request, type), text, self._run, self._limits)
            if failure := await _failure(self._queries.serve(access, asked, client)):
                await client.fail(failure)
        return await client.reply.end()

    async def _subscribe(self, request: web.Request) -> web.StreamResponse:
        _require_chunks(request)
        text, type = _accepted(request, SUBSCRIBE_TEXTS)
        access = await self._admit(request)
        async with self._limits.calls.hold(access.caller):
            asked, resumed, has_all = _subscribe_request(request, progress=type == EVENTS)
            if has_all:
                return web.Response(status=204)
            client = HttpSubscriber(HttpReply(request, type), text, self._run, asked, resumed)
            async with client.reply.beating() if type == EVENTS else contextlib.nullcontext():
                serve = self._subscribes.serve(access, lambda: self._admit(request), asked, client)
                if failure := await _failure(serve):
                    await client.fail(failure)
                else:
                    await client.end()
        return await client.reply.end()

    async def _admit(self, request: web.Request) -> Access:
        return await self._authenticator.authenticate(request.headers.get("Authorization", ""), passwords=False)

    async def _run(self, convert: Callable[..., T], *arguments: Any) -> T:
        """One thread for all clients: the event loop has the other half of the interpreter's time."""
        return await asyncio.get_running_loop().run_in_executor(self._texts, convert, *arguments)


Run = Callable[..., Any]
"""Runs a function in the thread for text; returns an awaitable of its result."""


class HttpReply:
    """The answer to one request: its status and headers with the first byte. `broken`: the body is not whole."""

    def __init__(self, request: web.Request, type: str) -> None:
        self._request, self._type = request, type
        self._response: web.StreamResponse | None = None
        self._broken = False

    @property
    def has_begun(self) -> bool:
        return self._response is not None

    async def begin(self, headers: Mapping[str, str]) -> None:
        response = web.StreamResponse(headers={**_HEADERS, **headers, "Content-Type": f"{self._type}; charset=utf-8"})
        _notice_vanished(self._request)
        await response.prepare(self._request)
        self._response = response

    async def write(self, text: str) -> None:
        """Send a text; returns once the connection has room for more."""
        assert self._response is not None
        try:
            await self._response.write(text.encode())
        except ConnectionError:
            raise asyncio.CancelledError from None  # the client is gone: what gRPC does then

    async def break_off(self, text: str) -> None:
        """Send a last text, where the client takes it within CHUNK_SECONDS, and no end of the body."""
        self._broken = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHUNK_SECONDS):
                await self.write(text)

    async def end(self) -> web.StreamResponse:
        """The response; a body that is not whole gets no end. Its connection is closed once the client has taken what
        was sent, at the latest after CHUNK_SECONDS."""
        assert self._response is not None
        if self._broken and (transport := self._request.transport) is not None:
            transport.close()
            asyncio.get_running_loop().call_later(CHUNK_SECONDS, transport.abort)
        return self._response

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Send a comment of server-sent events again and again, so that no proxy takes the connection for dead."""
        beats = asyncio.create_task(self._beat(), name="beat of a subscribe")
        try:
            yield
        finally:
            beats.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if self._response is not None:
                await self.write(":\n")


def _complete(batches: ArrowBatches, piece: bytes) -> list[pa.RecordBatch]:
    """Raises QueryRefused where a batch is too large."""
    try:
        return batches.feed(piece)
    except BatchTooLarge as error:
        raise QueryRefused(
            f"{error}, which HTTP does not take: select fewer columns, or use kubectl tidemark query"
        ) from None


class HttpClient(Generic[X]):
    """The client of one call over HTTP. `_text`: makes the text of the reply; None until the reply begins."""

    def __init__(self, reply: HttpReply, run: Run) -> None:
        self.reply, self._run = reply, run
        self._text: X | None = None

    async def write(self, message: str) -> None:
        await self.reply.write(message)

    async def fail(self, error: OperatorError) -> None:
        """Raises the error where nothing was sent yet."""
        if not self.reply.has_begun:
            raise error
        assert self._text is not None
        await self.reply.break_off(self._text.failed(as_json(error), is_void=isinstance(error, SubscribeVoid)))


class HttpQuery(HttpClient[QueryText]):
    """The client of one query over HTTP."""

    def __init__(self, reply: HttpReply, text: type[QueryText], run: Run, limits: GatewayLimits) -> None:
        super().__init__(reply, run)
        self._make = text
        self.large: FairQueue | None = limits.texts

    def take(self, answer: QueryAnswer, data: bytes) -> bool:
        return False

    async def messages(self, answer: QueryAnswer) -> AsyncGenerator[str, None]:
        text = self._text = self._make(answer)
        if text.one_name_one_column:
            _check_names(text.names)
        batches = ArrowBatches()
        async for piece in answer.arrow:
            for batch in await self._run(partial(_complete, batches), piece):
                if not self.reply.has_begun:
                    yield await self._begin(text, answer)
                for rows in slices(batch):
                    yield await self._run(text.rows, rows)
        batches.finish()
        if not self.reply.has_begun:
            yield await self._begin(text, answer)
        yield text.tail()

    async def _begin(self, text: QueryText, answer: QueryAnswer) -> str:
        """Send the head of the reply, after the first batch is there: until then an error has its status."""
        skipped = {"Tidemark-Skipped-Errors": str(answer.skipped)} if answer.skipped else {}
        await self.reply.begin({"Tidemark-As-Of": str(answer.as_of), **skipped})
        return text.head()


class HttpSubscriber(HttpClient[SubscribeText]):
    """The client of one subscribe over HTTP. `resumed`: the fingerprint of what it read before; None: it begins."""

    def __init__(
        self, reply: HttpReply, text: type[SubscribeText], run: Run, asked: SubscribeRequest, resumed: str | None
    ) -> None:
        super().__init__(reply, run)
        self._make, self._asked, self._resumed = text, asked, resumed

    async def begin(self, columns: Sequence[Column], as_of: int, reads: Sequence[GlobalId]) -> None:
        names = [column.name for column in columns]
        _check_names(names)
        mark = fingerprint(self._asked.subject, columns, reads)
        if self._resumed not in (None, mark):
            raise HttpRefused(409, _CHANGED)
        self._text = self._make(names, self._asked.progress, as_of, mark)
        await self.reply.begin({"Tidemark-As-Of": str(as_of), "X-Accel-Buffering": "no"})

    async def messages(self, news: SubscribeAdvanced) -> AsyncGenerator[str, None]:
        assert self._text is not None
        if news.batch.updates:
            updates = await self._run(_updates, news)
            for rows in slices(updates):
                yield await self._run(self._text.changes, rows)
        if text := self._text.upper(news.batch.upper.encode()):
            yield text

    async def end(self) -> None:
        assert self._text is not None
        await self.reply.write(self._text.end())


async def _failure(serve: Awaitable[None]) -> OperatorError | None:
    """The error of `serve`, without its tracebacks: these hold the rows that were being sent, while a client may
    take long to take the error."""
    try:
        await serve
    except OperatorError as error:
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)
    return None


def _updates(news: SubscribeAdvanced) -> pa.Table:
    lower, part = news.lower
    return unseen(pa.ipc.open_stream(news.batch.updates).read_all(), lower.encode(), part)


async def _query_request(request: web.Request) -> QueryRequest:
    given = _parameters(request, QUERY_PARAMETERS)
    sql = await _statement(request, given)
    return QueryRequest(
        given.get("namespace", "default"),
        sql,
        _time(given, "as_of"),
        given.get("instance", ""),
        _flag(given, "strict", False),
        given.get("replica", ""),
        _flag(given, "skip_errors", False),
        given.get("dialect") or SPARK,
    )


async def _statement(request: web.Request, given: Mapping[str, str]) -> str:
    if request.method == "GET":
        if "sql" not in given:
            raise QueryRefused("parameter sql is missing: /v1/query?sql=SELECT...")
        return given["sql"]
    if "sql" in given:
        raise QueryRefused("a POST has its statement in the body, not in parameter sql")
    most = 4 * MAX_SQL_CHARACTERS
    body = b"".join([piece async for piece in http_body.body_pieces(request, most, "shorten the statement")])
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise QueryRefused("the statement is not UTF-8") from None


def _subscribe_request(request: web.Request, progress: bool) -> tuple[SubscribeRequest, str | None, bool]:
    """`progress`: where the parameter is absent. The second value: the fingerprint of what the client read before;
    None: it begins. The third: it has all that the subscribe would send."""
    given = _parameters(request, SUBSCRIBE_PARAMETERS)
    if "subject" not in given:
        raise QueryRefused("parameter subject is missing: the name of a table or export, or SQL")
    asked = SubscribeRequest(
        namespace=given.get("namespace", "default"),
        subject=given["subject"],
        instance=given.get("instance", ""),
        as_of=_time(given, "as_of"),
        up_to=_time(given, "up_to"),
        without_snapshot=not _flag(given, "snapshot", True),
        progress=_flag(given, "progress", progress),
        replica=given.get("replica", ""),
    )
    last = request.headers.get("Last-Event-ID", "")
    if not last:
        return asked, None, False
    if last == LAST_ID:
        return asked, None, True
    if last == VOID_ID:
        raise HttpRefused(409, _CHANGED)
    time, _, resumed = last.partition(".")
    asked.as_of, asked.without_snapshot = _parsed("Last-Event-ID", time), True
    return asked, resumed, asked.HasField("up_to") and asked.as_of >= asked.up_to - 1


def _parameters(request: web.Request, known: Sequence[str]) -> dict[str, str]:
    """Raises QueryRefused where one is unknown, or there twice."""
    given = list(request.query)
    if unknown := next((name for name in given if name not in known), None):
        raise QueryRefused(f"{request.path} has no parameter {unknown!r:.40}: it has {', '.join(known)}")
    if twice := next((name for name in given if given.count(name) > 1), None):
        raise QueryRefused(f"parameter {twice} is there twice")
    return dict(request.query)


def _time(given: Mapping[str, str], name: str) -> int | None:
    return _parsed(name, given[name]) if name in given else None


def _parsed(name: str, text: str) -> int:
    try:
        return parse(text[:100])
    except ValueError as error:
        raise QueryRefused(f"{name}: {error}") from None


def _flag(given: Mapping[str, str], name: str, absent: bool) -> bool:
    value = given.get(name)
    if value is None:
        return absent
    if value.lower() not in _TRUE + _FALSE:
        raise QueryRefused(f"parameter {name} is true or false, not {value!r:.40}")
    return value.lower() in _TRUE


def _require_chunks(request: web.Request) -> None:
    """Raises HttpRefused where a client could not tell an answer that breaks off from a whole one."""
    if request.version < HttpVersion11:
        raise HttpRefused(
            505, f"{request.path} needs HTTP/1.1, for an end of its answers; of nginx: proxy_http_version 1.1"
        )


def _accepted(request: web.Request, known: Mapping[str, K]) -> tuple[K, str]:
    """The first known type that the client accepts, and its name. Raises HttpRefused."""
    for part in request.headers.get("Accept", "*/*").split(","):
        type = part.partition(";")[0].strip().lower()
        if type in ("*/*", "application/*", ""):
            type = next(iter(known))
        if type in known:
            return known[type], type
    raise HttpRefused(406, f"Accept names none of the types that {request.path} has: {', '.join(known)}")


def _check_names(names: Sequence[str]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise QueryRefused(f"JSON has one value for a name, and two columns are called {twice}: rename one with AS")


def _notice_vanished(request: web.Request) -> None:
    connection = None if request.transport is None else request.transport.get_extra_info("socket")
    if connection is not None:
        for option, value in _VANISHED:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
