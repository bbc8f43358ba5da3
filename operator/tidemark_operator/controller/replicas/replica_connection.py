"""The I/O with one replica: connect for ever, describe, greet, then pass frames both ways.

    connect ─► Describe ─► the host installs what is stored ─► Hello, CreateInstance, replay ─► both ways
       ▲                                                                                          │
       └───────────── any error, a clean end, or silence: at most a second later ─────────────────┘

All state is the host's. Each attempt has an epoch of its own, so no message of an earlier one counts. A replica that
hangs without closing its connection is found by a Describe every ten seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import grpc

from tidemark_operator.certificates.channel_factory import PLAIN_CHANNELS, ChannelFactory
from tidemark_operator.errors import LeadershipLost, OperatorError
from tidemark_protocol.errors import ProtocolError
from tidemark_protocol.ids import Epoch, ReplicaId, ShardId
from tidemark_protocol.messages.commands import Command, CreateInstance, Hello, InstanceConfig
from tidemark_protocol.messages.responses import Description, Response
from tidemark_protocol.pb import compute_pb2, compute_pb2_grpc
from tidemark_protocol.wire.cancellation import is_canceled
from tidemark_protocol.wire.describe import description_from_proto
from tidemark_protocol.wire.frames import GRPC_OPTIONS, Unpacker, pack_commands

LOG = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 1.0
DESCRIBE_SECONDS = 30.0
PROBE_SECONDS = 10.0
INSPECT_SECONDS = 120.0
WRITE_SECONDS = 2 * 3600.0
"""A call that writes rows is answered at a tick, and ticks are at most an hour apart."""
CLOSED = "the replica closed the connection"
KEEPALIVE = (
    # a frozen replica is noticed within 6 s, so that another one ingests within 10; a thread of gRPC's answers, so work
    # does not delay it
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),  # else a minute: the timeout above counts only while bytes wait to be sent
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass
class RpcCounters:
    """Bytes are those of encoded frames. `connect_seconds`: summed from dialing, or the loss of the connection
    before, to the replica's description."""

    sent_bytes: int = 0
    received_bytes: int = 0
    connect_seconds: float = 0.0


class ConnectionOwner(Protocol):
    """The owner of the connection."""

    config: InstanceConfig
    traffic: RpcCounters

    def shards_to_describe(self, pending: bool = False) -> Iterable[tuple[ShardId, str]]:
        """Shards whose frontiers are needed: all, or those alone that no replica could describe yet (`pending`)."""

    async def epoch(self, replica: ReplicaId, served: Epoch | None) -> Epoch:
        """The next epoch. `served`: the epoch of the client that the replica has now."""

    def described(self, replica: ReplicaId, connection: int, description: Description) -> None:
        """A connection begins; afterwards `take` returns the replay."""

    def take(self, replica: ReplicaId, connection: int) -> list[Command]:
        """The commands to send. Raises: OperatorError where the connection must end."""

    async def wait(self, replica: ReplicaId) -> None:
        """Wait until there may be something to send."""

    def received(self, replica: ReplicaId, connection: int, responses: Sequence[Response]) -> None:
        """Take responses. Raises: OperatorError where the connection must end."""

    def probed(self, replica: ReplicaId, connection: int, description: Description) -> None:
        """The replica answered a Describe. Raises: OperatorError where the connection must end."""

    def connection_lost(self, replica: ReplicaId, connection: int, why: str) -> None:
        """The replica's connection ended; `why` is the reason as text."""

    def unreachable(self, replica: ReplicaId, why: str) -> None:
        """A process answers, but not as this replica: its certificate or its messages are wrong."""


class ReplicaConnection:
    """Keeps one replica connected: `run` it as a task, and cancel it to close the connection. It ends by itself
    where another operator leads."""

    def __init__(
        self, replica: ReplicaId, address: str, host: ConnectionOwner, dialer: ChannelFactory = PLAIN_CHANNELS
    ) -> None:
        self.replica, self.address, self.dialer = replica, address, dialer
        self._host = host
        self._stub: compute_pb2_grpc.ComputeStub | None = None
        self._dialed_at = 0.0
        self.probe_now = asyncio.Event()

    def reaches(self, address: str, dialer: ChannelFactory) -> bool:
        """Whether the connection goes to this address, with this dialer."""
        return (self.address, self.dialer) == (address, dialer)

    async def run(self) -> None:
        """Connect again and again until cancelled. Raises: LeadershipLost."""
        pause = FIRST_PAUSE_SECONDS
        self._dialed_at = asyncio.get_running_loop().time()
        while True:
            began = asyncio.get_running_loop().time()
            await self._attempt()
            lived = asyncio.get_running_loop().time() - began
            pause = FIRST_PAUSE_SECONDS if lived > MAX_PAUSE_SECONDS else min(2 * pause, MAX_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    async def describe(self, shards: Iterable[tuple[ShardId, str]]) -> Description:
        """Have the replica describe shards, beside the stream. Raises: grpc.RpcError; OperatorError without a
        connection."""
        return await self.ask(lambda stub: self._describe(stub, shards, frontiers_alone=False))

    async def fetch(self, uuid: str, offset: int) -> bytes:
        """A piece of a stashed answer, from a byte offset on. Raises: grpc.RpcError; OperatorError without a
        connection."""
        request = compute_pb2.FetchStashRequest(uuid=uuid, offset=offset)
        answer = await self.ask(lambda stub: stub.FetchStash(request, timeout=DESCRIBE_SECONDS))
        return bytes(answer.data)

    def write_rows(self) -> grpc.aio.StreamUnaryCall:
        """A call that writes rows: its messages are to be written, then it is awaited. Raises: OperatorError without a
        connection."""
        return self._connected().WriteRows(timeout=WRITE_SECONDS)

    async def _attempt(self) -> None:
        """One connection, from dialing to its end."""
        connection = 0
        why = CLOSED
        try:
            async with self.dialer.channel(self.address, [*GRPC_OPTIONS, *KEEPALIVE]) as channel:
                stub = compute_pb2_grpc.ComputeStub(channel)  # type: ignore[no-untyped-call]
                description = await self._describe(stub, self._host.shards_to_describe())
                epoch = await self._host.epoch(self.replica, description.epoch)
                connection = epoch.connection
                self._host.described(self.replica, connection, description)
                self._stub = stub
                self._host.traffic.connect_seconds += asyncio.get_running_loop().time() - self._dialed_at
                await self._converse(stub, epoch)
        except grpc.RpcError as error:
            why = _text(error)
            if not connection and (blamed := await self.dialer.explain(self.address)):
                self._host.unreachable(self.replica, blamed)
        except LeadershipLost:
            raise  # the process ends: another operator leads
        except (ProtocolError, OperatorError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            if not connection:
                self._host.unreachable(self.replica, why)
        finally:
            self._stub = None
            if connection:
                self._dialed_at = asyncio.get_running_loop().time()
                self._host.connection_lost(self.replica, connection, why)

    async def _converse(self, stub: compute_pb2_grpc.ComputeStub, epoch: Epoch) -> None:
        """Write, read and probe until one of the three ends; the others end with it."""
        stream = stub.CommandResponseStream()
        tasks = [
            asyncio.create_task(self._write(stream, epoch)),
            asyncio.create_task(self._read(stream, epoch.connection)),
            asyncio.create_task(self._probe(stub, epoch.connection)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            stream.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, stream: grpc.aio.StreamStreamCall, epoch: Epoch) -> None:
        greeting: list[Command] = [Hello(uuid.uuid4().hex, epoch), CreateInstance(self._host.config)]
        await self._send(stream, greeting)
        while True:
            commands = self._host.take(self.replica, epoch.connection)
            if commands:
                await self._send(stream, commands)
            else:
                await self._host.wait(self.replica)

    async def _send(self, stream: grpc.aio.StreamStreamCall, commands: list[Command]) -> None:
        for frame in pack_commands(commands):
            try:
                await stream.write(frame)
            except asyncio.InvalidStateError:  # the stream has ended, and the reader has not noticed yet
                raise OperatorError(await _end_of(stream)) from None
            self._host.traffic.sent_bytes += frame.ByteSize()

    async def _read(self, stream: grpc.aio.StreamStreamCall, connection: int) -> None:
        unpacker = Unpacker.of_responses()
        async for frame in stream:
            self._host.traffic.received_bytes += frame.ByteSize()
            self._host.received(self.replica, connection, unpacker.feed(frame))

    async def _probe(self, stub: compute_pb2_grpc.ComputeStub, connection: int) -> None:
        """Ask the replica to describe itself every ten seconds, or as soon as `probe_now` is set. A replica that
        does not answer in time is lost."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):
                    await self.probe_now.wait()
            self.probe_now.clear()
            description = await self._describe(stub, self._host.shards_to_describe(pending=True))
            self._host.probed(self.replica, connection, description)

    async def _describe(
        self,
        stub: compute_pb2_grpc.ComputeStub,
        shards: Iterable[tuple[ShardId, str]],
        frontiers_alone: bool = True,
    ) -> Description:
        """`frontiers_alone`: without columns, which for all shards of a large namespace would exceed an answer's 4
        MiB."""
        refs = [compute_pb2.ShardRef(id=id, location=location) for id, location in shards]
        request = compute_pb2.DescribeRequest(shards=refs, frontiers_alone=frontiers_alone)
        return description_from_proto(await stub.Describe(request, timeout=DESCRIBE_SECONDS))

    async def ask(self, call: Callable[[Any], Awaitable[T]]) -> T:
        """The answer to a call beside the stream. Raises: grpc.RpcError; OperatorError without a connection, also where
        it ends under the call."""
        stub = self._connected()
        try:
            return await call(stub)
        except asyncio.CancelledError:
            if is_canceled():
                raise
            raise OperatorError(f"replica {self.replica} was lost before it answered") from None

    def _connected(self) -> compute_pb2_grpc.ComputeStub:
        if self._stub is None:
            raise OperatorError(f"replica {self.replica} is not connected")
        return self._stub


def _text(error: grpc.RpcError) -> str:
    """The code and details of a gRPC error."""
    code = getattr(error, "code", None)
    details = getattr(error, "details", None)
    return f"{code().name}: {details()}" if code and details else str(error)


async def _end_of(stream: grpc.aio.StreamStreamCall) -> str:
    """The reason why a stream has ended."""
    code = await stream.code()
    return CLOSED if code is grpc.StatusCode.OK else f"{code.name}: {await stream.details()}"
