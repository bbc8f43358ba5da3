"""The way to the operator's gateway: one channel for all sessions, each call with its user's token.

    call ──► lost before its first answer? ──► again after a moment, by the address of then, at most RETRIES times

The leader moves, and the gateway with it; reads are asked again. A refusal of the gateway is an error with a SQLSTATE.
Queries go over one stream (query_stream.py), and over calls of their own where there is none.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from operator import methodcaller
from typing import Any, TypeVar

import grpc

from tidemark.errors import Error
from tidemark.gateway.channel import async_channel
from tidemark.gateway.discovery import Gateway
from tidemark_pgwire import errors
from tidemark_pgwire.catalogue.facts import CatalogueRelation
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.gateway_errors import GATEWAY_SILENT, call_errors, channel_closed, gateway_unavailable, wire_error
from tidemark_pgwire.query_reading import CallReading, QueryReading, StreamReading
from tidemark_pgwire.query_stream import QUERY_BYTES, SharedStream
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub
from tidemark_protocol.types import Column, SqlType
from tidemark_protocol.wire.cancellation import is_canceled

RETRY_SECONDS = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)
"""The pauses between calls to a gateway that is away: a new leader takes some seconds."""
CALL_SECONDS = 30.0
"""The deadline of calls that read no rows."""
PERHAPS_STORED = "The change may be stored or not: look at it, then run the statement again."
_KINDS = {"table": "table", "materializedView": "materialized view", "index": "view"}
STREAM_SECONDS, NO_STREAM_SECONDS = 1.0, 60.0
"""The time between the beginnings of two streams; and after one that an earlier gateway does not know."""
REPLACED_SECONDS = 3600.0
"""The time for which a channel that was replaced is kept for the calls that are on it."""
WRITE_SECONDS = 60.0
"""The time for which a call that writes rows is made again: a replica that restarts takes some seconds more than a
leader."""
END_SECONDS, MAX_ENDED = 0.2, 4096
"""The time for which ended leases wait for others, as one call ends many; and how many it ends."""
MAX_WAITING = 16 * MAX_ENDED
"""The ended leases that wait while the gateway is away; older ones are forgotten, and end by themselves."""
_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)
_NOT_YET = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.RESOURCE_EXHAUSTED)
"""Statuses of calls that wrote no rows. After any other one nobody knows whether the call did."""
_OF_ROWS = ("23505", "P0002", "21000")
"""Refusals that are made after the key of the call was looked up: an earlier call with it wrote nothing."""
T = TypeVar("T")


class Channel:
    """A channel to one address of the gateway. `stub`: making one costs more than a call."""

    def __init__(self, at: Gateway) -> None:
        self.at, self._channel = at, async_channel(at)
        self.stub = GatewayStub(self._channel)  # type: ignore[no-untyped-call]
        self._calls, self._replaced = 0, False
        self._stream: SharedStream | None = None
        self._stream_after = 0.0
        self._closing: asyncio.Task[None] | None = None

    @contextmanager
    def used(self) -> Iterator[GatewayStub]:
        """Calls of the block are on this channel, also where it is replaced meanwhile."""
        self._calls += 1
        try:
            yield self.stub
        finally:
            self._calls -= 1
            self._close_unused()

    def stream(self, token: str) -> SharedStream | None:
        """The stream of queries, which the caller of the first one opens; None: none can be opened now."""
        if self._stream is not None and not self._stream.ended:
            return self._stream
        now = time.monotonic()
        if self._stream is not None:
            unknown = self._stream.status is grpc.StatusCode.UNIMPLEMENTED
            self._stream, self._stream_after = None, now + (NO_STREAM_SECONDS if unknown else 0.0)
        if now < self._stream_after:
            return None
        self._stream_after = now + STREAM_SECONDS
        self._stream = SharedStream(self.stub.Queries(**_call(token)))
        return self._stream

    def replace(self) -> None:
        """Close once the last call has ended, at the latest after REPLACED_SECONDS."""
        self._replaced = True
        self._close_unused()
        if self._closing is None:
            asyncio.get_running_loop().call_later(REPLACED_SECONDS, self._close)

    @property
    def is_closed(self) -> bool:
        """Whether calls on it were ended."""
        return self._closing is not None

    def stream_error(self) -> WireError:
        """The error of a query whose stream ended."""
        return channel_closed() if self.is_closed else gateway_unavailable()

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.close()
        await self._channel.close()

    def _close_unused(self) -> None:
        if self._replaced and not self._calls:
            self._close()

    def _close(self) -> None:
        self._closing = self._closing or asyncio.ensure_future(self.close())


class GatewayLink:
    """`find`: the gateway's address, without a token; called again where the gateway is away."""

    def __init__(self, find: Callable[[], Gateway]) -> None:
        self._find = find
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._ended_leases = deque[str](maxlen=MAX_WAITING)
        self._ending_leases: asyncio.Task[None] | None = None
        self._ending_token = ""

    async def user(self, token: str) -> str:
        """The name of the token's user. Raises WireError."""
        reply = await self._ask(lambda stub: stub.Caller(pb.CallerRequest(), **_call(token, CALL_SECONDS)))
        return str(reply.name)

    async def describe(self, token: str, request: pb.QueryRequest) -> tuple[Column, ...]:
        """The columns of an answer. Raises WireError."""
        reply = await self._ask(lambda stub: stub.Describe(request, **_call(token, CALL_SECONDS)), request.sql)
        described = zip(reply.column_names, reply.column_types, reply.nullable, strict=True)
        return tuple(Column(name, SqlType.parse(type), nullable) for name, type, nullable in described)

    async def explain(self, token: str, request: pb.ExplainRequest) -> str:
        """Raises WireError."""
        reply = await self._ask(lambda stub: stub.Explain(request, **_call(token, CALL_SECONDS)), request.subject)
        return str(reply.text)

    async def relations(self, token: str, namespace: str) -> tuple[CatalogueRelation, ...]:
        """The namespace's relations that the user may see. Raises WireError."""
        request = pb.RelationsRequest(namespace=namespace)
        reply = await self._ask(lambda stub: stub.Relations(request, **_call(token, CALL_SECONDS)))
        return tuple(map(_relation, reply.relations))

    async def table(self, token: str, request: pb.DescribeTableRequest) -> Any:
        """The columns of a table that the user may write, as a DescribeTableReply. One that starts is waited for, as by
        the call that writes its rows. Raises WireError."""
        until, pauses = time.monotonic() + WRITE_SECONDS, iter(RETRY_SECONDS)
        while True:
            try:
                return await self._ask(lambda stub: stub.DescribeTable(request, **_call(token, CALL_SECONDS)))
            except WireError as error:
                if error.sqlstate != errors.CANNOT_CONNECT_NOW or time.monotonic() >= until:
                    raise
            await asyncio.sleep(next(pauses, RETRY_SECONDS[-1]))

    async def insert(self, token: str, header: pb.InsertHeader, body: Callable[[], Iterator[bytes]], size: int) -> Any:
        """Write rows, as an InsertReply. Where the answer is lost, or the table takes no rows now, the call is made
        again with its key, so the rows are written once. `body`: the pieces from the first one on, of `size` bytes.
        Raises WireError."""
        until, pauses, maybe, sending = math.inf, iter(RETRY_SECONDS), False, Sending(header, body, size)
        try:
            while True:
                try:
                    with (await self._connected()).used() as stub:
                        return await stub.Insert(sending.messages(), **_call(token))
                except grpc.aio.AioRpcError as failed:
                    code, error = failed.code(), wire_error(failed)
                except WireError as missing:  # the gateway cannot be found, so this call was not made
                    code, error = grpc.StatusCode.FAILED_PRECONDITION, missing
                except asyncio.CancelledError:
                    if is_canceled():
                        raise
                    code, error = grpc.StatusCode.UNAVAILABLE, WireError(errors.CANNOT_CONNECT_NOW, GATEWAY_SILENT)
                if sending.broken is not None:  # the call has no end, so it wrote nothing
                    raise _unknown(str(sending.broken)) if maybe else sending.broken
                maybe |= code not in (*_REFUSED, *_NOT_YET)
                until = min(until, time.monotonic() + WRITE_SECONDS)
                refused = code in _REFUSED or error.sqlstate == errors.NOT_IN_STATE  # neither passes by itself
                if refused or time.monotonic() >= until:
                    raise _unknown(str(error)) if maybe and error.sqlstate not in _OF_ROWS else error
                await asyncio.sleep(next(pauses, RETRY_SECONDS[-1]))
                await self._find_again()
        except asyncio.CancelledError:
            raise _unknown("canceled") from None

    async def define(self, token: str, request: pb.DefineRequest) -> Any:
        """A DefineReply. Raises WireError. A lost call is asked again by the same id."""
        return await self._written(lambda stub: stub.Define(request, **_call(token)), request.sql)

    async def drop(self, token: str, request: pb.DropRequest) -> Any:
        """A DropReply. Raises WireError. A call after a lost one finds the object deleted, perhaps."""

        async def ask(stub: GatewayStub) -> Any:
            nonlocal request
            asked, request = request, pb.DropRequest()
            request.CopyFrom(asked)
            request.repeated = True
            return await stub.Drop(asked, **_call(token))

        return await self._written(ask)

    async def query(self, token: str, request: pb.QueryRequest) -> QueryReading:
        """The answer, which the caller closes. Raises WireError."""
        if (reading := await self._streamed(token, request)) is not None:
            return reading
        async with AsyncExitStack() as stack:
            started = lambda stub: stub.Query(request, **_call(token))  # noqa: E731
            first, call = await stack.enter_async_context(self._streaming(started, request.sql))
            return CallReading(first.header, call, stack.pop_all())
        raise AssertionError

    async def _streamed(self, token: str, request: pb.QueryRequest) -> QueryReading | None:
        """The answer over the stream of queries; None: there is no stream, it ended, or the query is too long for it.
        Raises WireError."""
        channel = await self._connected()
        if request.ByteSize() > QUERY_BYTES or (stream := channel.stream(token)) is None:
            return None
        reading = StreamReading(stream.ask(token, request), channel.used(), channel.stream_error, request.sql)
        try:
            if await reading.begin():
                return reading
        except BaseException:
            await reading.close()
            raise
        await reading.close()
        if channel.is_closed:
            raise channel_closed()
        return None

    async def renew_lease(self, token: str, request: pb.LeaseRequest) -> tuple[str, ...]:
        """The relations that the lease holds for a minute from now on. Raises WireError."""
        reply = await self._ask(lambda stub: stub.Lease(request, **_call(token, CALL_SECONDS)))
        return tuple(reply.relations)

    def end_lease(self, token: str, id: str) -> None:
        """Have a lease ended soon; where that fails once, it ends by itself. `token`: of anybody, as the id is a
        secret."""
        self._ended_leases.append(id)
        self._ending_token = token
        if self._ending_leases is None or self._ending_leases.done():
            self._ending_leases = asyncio.create_task(self._end_leases(), name="ended leases")

    async def _end_leases(self) -> None:
        while self._ended_leases:
            await asyncio.sleep(END_SECONDS)
            token = self._ending_token  # of the newest session: this may go on for longer than a token lasts
            waiting = self._ended_leases
            request = pb.EndLeasesRequest(ids=[waiting.popleft() for _ in range(min(len(waiting), MAX_ENDED))])
            call = methodcaller("EndLeases", request, **_call(token, CALL_SECONDS))
            with suppress(WireError):
                await self._ask(call)

    @asynccontextmanager
    async def subscribe(self, token: str, request: pb.SubscribeRequest) -> AsyncIterator[tuple[Any, Any]]:
        """The header, and the call whose further messages are batches. Raises WireError."""
        started = lambda stub: stub.Subscribe(request, **_call(token))  # noqa: E731
        async with self._streaming(started, request.subject) as (first, call):
            yield first.header, call

    async def close(self) -> None:
        if (ending := self._ending_leases) is not None:
            await asyncio.wait({ending}, timeout=1.0)
            ending.cancel()
        if self._channel is not None:
            await self._channel.close()

    @asynccontextmanager
    async def _streaming(self, start: Callable[[GatewayStub], Any], sql: str) -> AsyncIterator[tuple[Any, Any]]:
        with ExitStack() as calls:

            async def begin(channel: Channel) -> tuple[Any, Any]:
                with ExitStack() as held:
                    call = start(held.enter_context(channel.used()))
                    held.callback(call.cancel)
                    first = await call.read()
                    if first is grpc.aio.EOF or first.WhichOneof("part") != "header":
                        text = "the gateway's answer has no header: it is of another version"
                        raise WireError(errors.INTERNAL_ERROR, text)
                    calls.push(held.pop_all())
                return first, call

            begun = await self._begin(begin, sql)
            with call_errors(sql):
                yield begun

    async def _written(self, ask: Callable[[GatewayStub], Awaitable[Any]], sql: str = "") -> Any:
        try:
            return await self._ask(ask, sql)
        except WireError as error:
            if error.sqlstate == errors.CANNOT_CONNECT_NOW and str(error) == GATEWAY_SILENT:
                error.hint = PERHAPS_STORED
            raise
        except asyncio.CancelledError:
            raise WireError(errors.QUERY_CANCELED, "canceling a definition", hint=PERHAPS_STORED) from None

    async def _ask(self, ask: Callable[[GatewayStub], Awaitable[T]], sql: str = "") -> T:
        """The gateway's answer to one call, on whichever channel it begins. `sql`: the text that errors point into."""

        async def begin(channel: Channel) -> T:
            with channel.used() as stub:
                return await ask(stub)

        return await self._begin(begin, sql)

    async def _begin(self, begin: Callable[[Channel], Awaitable[T]], sql: str) -> T:
        with call_errors(sql):
            for delay in RETRY_SECONDS:
                try:
                    return await begin(await self._connected())
                except grpc.aio.AioRpcError as failed:
                    if failed.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                await asyncio.sleep(delay)
                await self._find_again()
            return await begin(await self._connected())
        raise AssertionError

    async def _connected(self) -> Channel:
        if self._channel is not None:
            return self._channel
        async with self._opening:
            if self._channel is None:
                try:
                    found = await asyncio.to_thread(self._find)
                except Error as error:
                    raise WireError(errors.CANNOT_CONNECT_NOW, f"the gateway cannot be found: {error}") from None
                self._channel = Channel(found)
            return self._channel

    async def _find_again(self) -> None:
        """An operator on this machine has another port after each start."""
        try:
            found = await asyncio.to_thread(self._find)
        except Error:
            return
        if self._channel is not None and found != self._channel.at:
            before, self._channel = self._channel, None
            before.replace()


def _unknown(why: str) -> WireError:
    return WireError(
        errors.OUTCOME_UNKNOWN,
        f"{why}. The rows are in the table, all at one time, or none of them is",
        hint="Look before you repeat them. Rows with a tidemark.write_key are written once, however often they come.",
    )


class Sending:
    """The messages of a call that writes rows. `broken`: why a body cannot be read any more. gRPC ends a call whose
    messages fail, and tells no reason."""

    def __init__(self, header: pb.InsertHeader, body: Callable[[], Iterator[bytes]], size: int) -> None:
        self._header, self._body, self._size = header, body, size
        self.broken: WireError | None = None

    async def messages(self) -> AsyncIterator[pb.InsertRequest]:
        """The gateway writes nothing unless the pieces have so many bytes."""
        yield pb.InsertRequest(header=self._header)
        pieces = self._body()
        while piece := await self._next(pieces):
            yield pb.InsertRequest(data=piece)
        yield pb.InsertRequest(end=self._size)

    async def _next(self, pieces: Iterator[bytes]) -> bytes:
        try:
            return await asyncio.to_thread(next, pieces, b"")
        except WireError as error:
            self.broken = error
            raise


def _call(token: str, timeout: float | None = None) -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {token}"),), "timeout": timeout}


def _relation(described: Any) -> CatalogueRelation:
    columns = tuple(Column(each.name, SqlType.parse(each.type), each.nullable) for each in described.columns)
    keys = tuple(tuple(key.columns) for key in described.keys)
    kind = _KINDS.get(described.kind, "view")
    return CatalogueRelation(
        described.parent, described.name, kind, columns, keys, tuple(described.index_key), described.short
    )
