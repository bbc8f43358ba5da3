"""A scripted replica on a real unix socket, an attached instance, and the instance's events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.controller.harness import INPUT, LAG, at
from tests.controller.recording_listener import Heard
from tests.protocol.samples import SHARD
from tests.waiting import BOUND
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.errors import LeadershipLost, OperatorError
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.kube.leadership import Leadership
from tidemark_protocol.ids import Epoch, ReplicaId, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import (
    DescribedCollection,
    DescribedDataflow,
    DescribedShard,
    Description,
    Response,
)
from tidemark_protocol.pb import compute_pb2, compute_pb2_grpc
from tidemark_protocol.wire.describe import description_to_proto
from tidemark_protocol.wire.frames import Unpacker, pack_responses

R1, PIECE_BYTES, MOST_TERM = ReplicaId("r1"), 1000, 1 << 20


class ScriptedReplica(compute_pb2_grpc.ComputeServicer):
    """Remembers the commands of each stream; `say` answers, `hang_up` ends the stream."""

    def __init__(self, epoch: Epoch | None = None) -> None:
        self.epoch = epoch
        self.streams: list[list[c.Command]] = []
        self.described = self.nonsense = 0
        self.incarnation = "incarnation"
        self.listens = asyncio.Event()
        self.listens.set()
        self.unreadable = ""
        self.describes = asyncio.Event()
        """Descriptions wait for it."""
        self.describes.set()
        self.looked_at: list[tuple[str, ...]] = []
        self.dataflows: tuple[DescribedDataflow, ...] = ()
        self.collections: tuple[DescribedCollection, ...] = ()
        self.frontiers_alone: list[bool] = []
        self.stash: dict[str, bytes] = {}
        self.fetched: list[int] = []
        self.heard = asyncio.Event()
        self._outbox: asyncio.Queue[list[Any] | None] = asyncio.Queue()

    def say(self, *responses: Response) -> None:
        self._outbox.put_nowait(list(pack_responses(responses)))

    def say_nonsense(self) -> None:
        self._outbox.put_nowait([compute_pb2.Frame(version=99)])

    def describe_nonsense(self) -> None:
        """The next description is none, and this connection ends."""
        self.nonsense = 1
        self.hang_up()

    def hang_up(self) -> None:
        self._outbox.put_nowait(None)

    async def Describe(self, request: Any, context: Any) -> Any:
        if self.nonsense:
            self.nonsense -= 1
            return compute_pb2.DescribeResponse(collections=[compute_pb2.DescribedCollection(id="a", write=-1)])
        self.described += 1
        self.looked_at.append(tuple(s.id for s in request.shards))
        self.frontiers_alone.append(request.frontiers_alone)
        await self.describes.wait()
        error = self.unreadable or None
        shards = tuple(DescribedShard(s.id, True, at(500), at(0), WriterTerm(3), error) for s in request.shards)
        return description_to_proto(
            Description(self.incarnation, self.epoch, 0, self.dataflows, self.collections, shards)
        )

    async def FetchStash(self, request: Any, context: Any) -> Any:
        self.fetched.append(request.offset)
        self.heard.set()
        if request.uuid not in self.stash:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no answer of that peek is kept here")
        data = self.stash[request.uuid][request.offset : request.offset + PIECE_BYTES]
        return compute_pb2.FetchStashResponse(data=data)

    async def CommandResponseStream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        commands: list[c.Command] = []
        self.streams.append(commands)
        self._outbox = asyncio.Queue()
        reading = asyncio.create_task(self._read(requests, commands))
        while (frames := await self._outbox.get()) is not None:
            for frame in frames:
                yield frame
        reading.cancel()

    async def _read(self, requests: AsyncIterator[Any], commands: list[c.Command]) -> None:
        unpacker = Unpacker.of_commands()
        async for frame in requests:
            commands += unpacker.feed(frame)
            self.heard.set()
            await self.listens.wait()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND):
            while not holds():
                self.heard.clear()
                try:
                    await asyncio.wait_for(self.heard.wait(), 0.05)
                except TimeoutError:
                    continue


class Listening(Heard):
    """The work queue's side."""

    def __init__(self) -> None:
        super().__init__()
        self.restored = 0
        self.outranked_by: list[int] = []
        self.greetings: list[str] = []
        self.replaced = False
        self.connections_ended: list[asyncio.Task[None]] = []

    def greeted(self, instance: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        self.greetings.append(incarnation)
        return ()

    def restore(self, instance: RunningInstance, description: Description) -> None:
        self.restored += 1

    async def outranked(self, by: int) -> None:
        self.outranked_by.append(by)
        if by > MOST_TERM:
            raise OperatorError(f"no operator came to term {by}")
        if self.replaced:
            raise LeadershipLost(f"somebody leads under term {by}")
        leadership.term = by + 1

    def connection_ended(self, instance: RunningInstance, replica: ReplicaId, task: asyncio.Task[None]) -> None:
        self.connections_ended.append(task)


leadership = Leadership(kube=None, namespace="ns", identity="me")  # type: ignore[arg-type]
Scenario = Callable[[ScriptedReplica, RunningInstance, Listening], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., None]:
    """Plays a scenario with a replica that listens, and an instance that is attached to it."""

    async def with_server(scenario: Scenario, replica: ScriptedReplica) -> None:
        leadership.term = 4
        address = f"unix://{tmp_path}/s"
        server = grpc.aio.server()
        compute_pb2_grpc.add_ComputeServicer_to_server(replica, server)
        server.add_insecure_port(address)
        await server.start()
        listening, shards = Listening(), ShardBook()
        shards.register(INPUT, SHARD.location, LAG)
        instance = RunningInstance("ns", c.InstanceConfig("default", "/data"), shards, leadership, listening)
        instance.attach(R1, address)
        try:
            await scenario(replica, instance, listening)
        finally:
            await instance.close()
            await server.stop(None)

    def play(scenario: Scenario, epoch: Epoch | None = None) -> None:
        async def started() -> None:
            await with_server(scenario, ScriptedReplica(epoch))

        asyncio.run(started())

    return play


def complete(stream: list[c.Command]) -> bool:
    return c.InitializationComplete() in stream
