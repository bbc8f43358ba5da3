"""A connection against a scripted replica on a real unix socket: what is said, in which order, and what is survived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.bounds import BOUND
from tests.controller.worlds import INDEX, INPUT, LAG, TERM, at
from tests.protocol.samples import SHARD, dataflow
from tidemark_operator.controller.dataflows import Dataflow
from tidemark_operator.controller.notices import DataflowChanged, Notice
from tidemark_operator.controller.quarantine import Standing
from tidemark_operator.controller.shards import ShardBook
from tidemark_operator.fleet.running import RunningInstance, now_ms
from tidemark_operator.kube.leadership import Leadership
from tidemark_protocol import commands as c
from tidemark_protocol.describe import description_to_proto
from tidemark_protocol.frames import Unpacker, pack_responses
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, ReplicaId, WriterTerm
from tidemark_protocol.pb import compute_pb2, compute_pb2_grpc
from tidemark_protocol.responses import (
    DescribedCollection,
    DescribedShard,
    Description,
    Frontiers,
    PeekResponse,
    PeekRows,
    Response,
)

R1 = ReplicaId("r1")


class ScriptedReplica(compute_pb2_grpc.ComputeServicer):
    """Remembers the commands of each stream; `say` answers, `hang_up` ends the stream."""

    def __init__(self, epoch: Epoch | None = None) -> None:
        self.epoch = epoch
        self.streams: list[list[c.Command]] = []
        self.described = self.nonsense = 0
        self.collections: tuple[DescribedCollection, ...] = ()
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
        shards = tuple(DescribedShard(s.id, True, at(500), at(0), WriterTerm(3)) for s in request.shards)
        return description_to_proto(Description("incarnation", self.epoch, 0, (), self.collections, shards))

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

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND):
            while not holds():
                self.heard.clear()
                try:
                    await asyncio.wait_for(self.heard.wait(), 0.05)
                except TimeoutError:
                    continue


class Listening:
    """The work queue's side."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.restored = 0
        self.outranked_by: list[int] = []

    def standing(self, instance: RunningInstance, owner: str) -> Standing:
        return Standing.CLEAR

    def greeted(self, instance: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        return ()

    def occupied(self, instance: RunningInstance, replica: ReplicaId) -> None:
        if (occupied := instance.unrecorded(replica)) is not None:
            instance.recorded(replica, occupied)

    def restore(self, instance: RunningInstance, description: Description) -> None:
        self.restored += 1

    def replica_changed(self, instance: RunningInstance, replica: ReplicaId) -> None: ...

    def notice(self, instance: RunningInstance, notice: Notice) -> None:
        self.notices.append(notice)

    async def outranked(self, by: int) -> None:
        self.outranked_by.append(by)
        leadership.term = by + 1

    def ended(self, instance: RunningInstance, replica: ReplicaId, task: asyncio.Task[None]) -> None: ...


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


def test_must_describe_comes_first_then_the_greeting_then_the_history(play: Callable[..., None]) -> None:
    """Shards are known before anything is restored; Hello has term and connection."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))

        hello, create, configuration, last = replica.streams[0]
        assert isinstance(hello, c.Hello)
        assert hello.epoch == Epoch(4, 1)
        assert create == c.CreateInstance(instance.config)
        assert isinstance(configuration, c.UpdateConfiguration)
        assert last == c.InitializationComplete()
        assert (replica.described, listening.restored) == (1, 1)
        known = instance.core.shards.get(INPUT)
        assert known is not None
        assert (known.frontiers is not None, known.term) == (True, 3)

    play(scenario)


@pytest.mark.parametrize("end", ["hang_up", "say_nonsense", "describe_nonsense"])
def test_crash_a_connection_that_ends_is_made_anew_with_a_higher_epoch(play: Callable[..., None], end: str) -> None:
    """Whether it was closed, or the replica spoke nonsense, or said it of what it has; the history comes again."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        instance.flush()
        await replica.until(lambda: len(replica.streams[0]) > 4)

        getattr(replica, end)()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))

        first, second = (stream[0] for stream in replica.streams)
        assert isinstance(first, c.Hello)
        assert isinstance(second, c.Hello)
        assert second.epoch > first.epoch
        assert second.nonce != first.nonce
        assert c.CreateDataflow(dataflow("d", 300)) in replica.streams[1]
        assert replica.described == 2

    play(scenario)


def test_responses_reach_the_instance_and_peeks_their_askers(play: Callable[..., None]) -> None:
    """A hydrated dataflow is news; a peek's answer comes back, and is cancelled everywhere."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        replica.say(Frontiers(INDEX, at(400), at(400), at(400)))
        await replica.until(lambda: DataflowChanged("ns/d") in listening.notices)

        asked = c.Peek("p", c.IndexTarget(INDEX), c.Time(350), c.MapFilterProject(()), c.Finishing(), ())
        answer = asyncio.create_task(instance.peek(asked))
        await replica.until(lambda: asked in replica.streams[0])
        replica.say(PeekResponse("p", PeekRows(b"rows", 2)))

        assert await asyncio.wait_for(answer, BOUND) == PeekRows(b"rows", 2)
        await replica.until(lambda: c.CancelPeek("p") in replica.streams[0])

    play(scenario)


def test_a_query_that_is_given_up_is_cancelled_on_the_replica(play: Callable[..., None]) -> None:
    """And its hold goes."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        asked = c.Peek("p", c.IndexTarget(INDEX), c.Time(350), c.MapFilterProject(()), c.Finishing(), ())
        answer = asyncio.create_task(instance.peek(asked))
        await replica.until(lambda: asked in replica.streams[0])

        answer.cancel()
        await replica.until(lambda: c.CancelPeek("p") in replica.streams[0])

        collection = instance.core.dataflows.collection(INDEX)
        assert collection is not None
        assert collection.holds == {}

    play(scenario)


def test_must_a_replica_of_a_higher_term_is_not_spoken_to_under_a_lower_one(play: Callable[..., None]) -> None:
    """Whoever listens decides: here the Lease was lost, and the term is raised."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))

        assert listening.outranked_by == [9]
        hello = replica.streams[0][0]
        assert isinstance(hello, c.Hello)
        assert hello.epoch == Epoch(10, 1)

    play(scenario, epoch=Epoch(9, 2))


def test_an_instance_made_anew_counts_on_from_where_its_replicas_are(play: Callable[..., None]) -> None:
    """Under the same term a lower connection would be refused for ever."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))

        hello = replica.streams[0][0]
        assert isinstance(hello, c.Hello)
        assert hello.epoch == Epoch(4, 18)

    play(scenario, epoch=Epoch(4, 17))


def test_a_frontier_that_was_shown_is_where_a_new_operator_begins(play: Callable[..., None]) -> None:
    """A replica that hydrates again is behind it for a while; the export is not."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        instance.core.dataflows.seed({INDEX: at(480)})
        replica.say(Frontiers(INDEX, at(400), at(400), at(400)))
        await replica.until(lambda: DataflowChanged("ns/d") in listening.notices)

        collection = instance.core.dataflows.collection(INDEX)
        assert collection is not None
        assert (collection.write, collection.replicas[R1].write) == (at(480), at(400))
        assert collection.next_since() < Frontier.at(400)

    play(scenario)


def test_must_not_believe_a_description_beyond_the_clock(play: Callable[..., None]) -> None:
    """As little as a report: sinces would follow, and nobody could ever read again."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        ahead = now_ms() + 3_600_000
        replica.collections = (DescribedCollection(INDEX, at(300), at(ahead)),)
        replica.hang_up()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))

        collection = instance.core.dataflows.collection(INDEX)
        assert collection is not None
        assert collection.write is not None
        assert at(0) < collection.write < at(ahead)

    play(scenario)


def test_a_query_of_an_instance_that_is_deleted_is_answered(play: Callable[..., None]) -> None:
    """With an error, at once: its asker would wait for ever, and others for its place at the gateway."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        asked = c.Peek("p", c.IndexTarget(INDEX), c.Time(350), c.MapFilterProject(()), c.Finishing(), ())
        answer = asyncio.create_task(instance.peek(asked))
        await replica.until(lambda: asked in replica.streams[0])
        instance.abandon()

        assert "deleted" in (await asyncio.wait_for(answer, BOUND)).message

    play(scenario)
