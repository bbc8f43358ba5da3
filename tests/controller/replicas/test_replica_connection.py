"""A connection to a scripted replica on a real unix socket: its messages, their order, and survived faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from tests.controller.harness import INDEX, INPUT, LAG, TERM, at
from tests.controller.scripted import R1, Listening, ScriptedReplica, complete, play
from tests.protocol.samples import dataflow
from tests.waiting import BOUND
from tidemark_operator.controller.controller_events import DataflowChanged, ShardAppeared
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.read_policy import BELIEVED_AHEAD_MS
from tidemark_operator.controller.replicas import replica_link
from tidemark_operator.errors import LeadershipLost, OperatorError, Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import DEFAULT_RESULT_BYTES, RunningInstance
from tidemark_protocol.check.command import check_command
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, Time
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.replica_settings import LOG_LEVEL, LogLevel
from tidemark_protocol.messages.responses import DescribedCollection, Frontiers, PeekResponse, PeekRows
from tidemark_protocol.pb import compute_pb2, compute_pb2_grpc
from tidemark_protocol.plan.lir import MapFilterProject

__all__ = ["play"]


def test_a_changed_setting_reaches_connected_and_later_replicas(play: Callable[..., None]) -> None:
    """Once: reconciling an instance again says nothing. A replica takes all that it is told."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        for level in (LogLevel.DEBUG, LogLevel.DEBUG, LogLevel.WARNING):
            instance.configure({LOG_LEVEL: level.value}, DEFAULT_RESULT_BYTES)
        await replica.until(lambda: len(configured(replica.streams[0])) == 3)
        assert configured(replica.streams[0])[1:] == [{LOG_LEVEL: "debug"}, {LOG_LEVEL: "warning"}]

        address = instance.replicas[R1].connection.address
        instance.detach(R1)
        instance.attach(R1, address)
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))
        assert configured(replica.streams[1]) == [{LOG_LEVEL: "warning"}]

    play(scenario)


def configured(stream: list[c.Command]) -> list[dict[str, str]]:
    """The settings of each UpdateConfiguration; each is one that a replica takes."""
    commands = [command for command in stream if isinstance(command, c.UpdateConfiguration)]
    for command in commands:
        check_command(command)
    return [command.settings for command in commands]


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


def test_a_shard_that_could_not_be_read_is_asked_about_until_it_can(play: Callable[..., None]) -> None:
    """With the probe, for nobody need write it, or follow it, and whoever waits for it would wait for ever."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        replica.unreadable = "the store is away"
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        known = instance.core.shards.get(INPUT)
        assert known is not None
        assert (known.frontiers, known.error) == (None, "the store is away")

        replica.unreadable = ""
        instance.replicas[R1].connection.probe_now.set()
        await replica.until(lambda: ShardAppeared(INPUT) in listening.notices)
        assert (known.frontiers is not None, known.error) == (True, None)
        probes = len(replica.looked_at)
        instance.replicas[R1].connection.probe_now.set()
        await replica.until(lambda: len(replica.looked_at) > probes)
        assert replica.looked_at == [(INPUT,), (INPUT,), ()]

    play(scenario)


def test_crash_a_description_whose_connection_ends_is_no_cancellation(play: Callable[..., None]) -> None:
    """gRPC cancels the calls of a channel that is closed, and a handler that passed that on would never answer."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        replica.describes.clear()
        asked = asyncio.create_task(instance.describe([(INPUT, "/data/input")]))
        await replica.until(lambda: not replica.frontiers_alone[-1])
        replica.hang_up()
        with pytest.raises(Waiting, match="waiting for a replica of ComputeInstance default to answer"):
            await asked

    play(scenario)


def test_a_replica_is_unheard_until_it_tells_where_something_is(play: Callable[..., None]) -> None:
    """Whatever becomes of its connection until then, and wherever it listens."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        state = instance.replicas[R1]
        unheard, greeted = state.unheard_since_ms, state.first_greeted_ms
        assert 0 < unheard <= greeted
        replica.hang_up()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))
        assert (state.unheard_since_ms, state.first_greeted_ms) == (unheard, greeted)

        address = state.connection.address
        instance.attach(R1, "unix:///nobody/listens/here")
        instance.attach(R1, address)
        state = instance.replicas[R1]
        assert (state.unheard_since_ms, state.first_greeted_ms) == (unheard, greeted)
        await replica.until(lambda: len(replica.streams) == 3 and complete(replica.streams[2]))
        replica.say(Frontiers(INDEX, at(5), at(5), at(5)))
        await replica.until(lambda: state.unheard_since_ms == 0)
        assert state.first_greeted_ms >= greeted

        heard = state.first_greeted_ms
        instance.attach(R1, "unix:///nobody/listens/here")
        assert instance.replicas[R1].unheard_since_ms >= heard
        assert instance.replicas[R1].first_greeted_ms == 0

    play(scenario)


@pytest.mark.parametrize("end", ["hang_up", "say_nonsense", "describe_nonsense"])
def test_crash_a_connection_that_ends_is_made_again_with_a_higher_epoch(play: Callable[..., None], end: str) -> None:
    """Whether it was closed, or the replica spoke nonsense, or said it of what it has; the history comes again."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        instance.flush()
        await replica.until(lambda: len(replica.streams[0]) > 4)

        instance.replicas[R1].greeted_ms = 0
        ended_ms = now_ms()
        getattr(replica, end)()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))
        assert instance.replicas[R1].greeted_ms >= ended_ms

        first, second = (stream[0] for stream in replica.streams)
        assert isinstance(first, c.Hello)
        assert isinstance(second, c.Hello)
        assert second.epoch > first.epoch
        assert second.nonce != first.nonce
        assert c.CreateDataflow(dataflow("d", 300)) in replica.streams[1]
        assert replica.described == 2

    play(scenario)


def test_a_command_beside_the_end_of_a_stream_ends_the_connection_like_any_other_end(play: Callable[..., None]) -> None:
    """The stream's reader may see the end later than its writer."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        connection = instance.replicas[R1].connection
        async with grpc.aio.insecure_channel(connection.address) as channel:
            stream = compute_pb2_grpc.ComputeStub(channel).CommandResponseStream()  # type: ignore[no-untyped-call]
            await stream.write(compute_pb2.Frame(version=1))
            await replica.until(lambda: len(replica.streams) == 2)
            replica.hang_up()
            assert await stream.code() is grpc.StatusCode.OK
            with pytest.raises(OperatorError, match="the replica closed the connection"):
                await connection._send(stream, [c.InitializationComplete()])

    play(scenario)


def test_crash_a_probe_that_another_process_answers_ends_the_connection(play: Callable[..., None]) -> None:
    """The one that was greeted has died, whatever has become of its connection: who was hydrating there is blamed when
    its successor is greeted, and nothing is written down in the name of that one before."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        replica.incarnation = "successor"
        instance.replicas[R1].connection.probe_now.set()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))
        assert listening.greetings == ["incarnation", "successor"]

    play(scenario)


def test_a_replica_that_takes_no_commands_is_cut_off_by_the_next_probe(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it answers, and though a command of before is still being written to it; then it is told the history."""
    monkeypatch.setattr(replica_link, "MAX_OUTBOX", 10)

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        replica.listens.clear()
        while instance.core.links[0].queued <= replica_link.MAX_OUTBOX:
            for _ in range(replica_link.MAX_OUTBOX):
                instance.core.broadcast([c.UpdateConfiguration(settings={"large": "x" * 1_000_000})])
            instance.flush()
            await asyncio.sleep(0.05)
        assert len(replica.streams) == 1

        instance.replicas[R1].connection.probe_now.set()
        await replica.until(lambda: "takes no commands" in instance.replicas[R1].last_error)
        replica.listens.set()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))

    play(scenario)


def test_responses_reach_the_instance_and_peeks_their_askers(play: Callable[..., None]) -> None:
    """A hydrated dataflow is news; a peek's answer comes back, and the one who gave it is told nothing more of it."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        replica.say(Frontiers(INDEX, at(400), at(400), at(400)))
        await replica.until(lambda: DataflowChanged("ns/d") in listening.notices)

        asked = c.Peek("p", c.IndexTarget(INDEX), Time(350), MapFilterProject(()), Finishing(), ())
        answer = asyncio.create_task(instance.answers.peek(asked))
        await replica.until(lambda: asked in replica.streams[0])
        replica.say(PeekResponse("p", PeekRows(b"rows", 2)))

        assert await asyncio.wait_for(answer, BOUND) == PeekRows(b"rows", 2)
        instance.drop("ns/d")
        await replica.until(lambda: c.AllowCompaction(INDEX, Frontier.empty()) in replica.streams[0])
        assert c.CancelPeek("p") not in replica.streams[0]

    play(scenario)


def test_a_query_that_is_given_up_is_cancelled_on_the_replica(play: Callable[..., None]) -> None:
    """And its hold goes."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        asked = c.Peek("p", c.IndexTarget(INDEX), Time(350), MapFilterProject(()), Finishing(), ())
        answer = asyncio.create_task(instance.answers.peek(asked))
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


def test_must_a_connection_of_an_operator_that_was_replaced_ends(play: Callable[..., None]) -> None:
    """It is not tried again, as it is after any other trouble: whoever listens is told, and ends the process."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        listening.replaced = True
        (ended,), _ = await asyncio.wait({instance.replicas[R1].task}, timeout=BOUND)
        assert isinstance(ended.exception(), LeadershipLost)
        assert (listening.connections_ended, replica.streams) == ([ended], [])

    play(scenario, epoch=Epoch(9, 2))


def test_an_instance_made_again_counts_on_from_where_its_replicas_are(play: Callable[..., None]) -> None:
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
        assert collection.next_since(now_ms()) < Frontier.at(400)

    play(scenario)


def test_must_not_let_compaction_follow_a_replica_beyond_the_clock(play: Callable[..., None]) -> None:
    """Its clock is ahead: nobody could read at the present time any more."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        ahead = now_ms() + 3_600_000
        replica.collections = (DescribedCollection(INDEX, at(300), at(ahead)),)
        replica.hang_up()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))

        collection = instance.core.dataflows.collection(INDEX)
        assert collection is not None
        assert collection.write == at(ahead)
        assert collection.next_since(now_ms()) <= at(now_ms() + BELIEVED_AHEAD_MS)

    play(scenario)


FROZEN_SECONDS = 20.0
"""Pings find a frozen replica in 6 s; the probe alone would in 30 to 40."""


def test_crash_a_replica_that_is_frozen_is_lost_within_seconds(play: Callable[..., None], tmp_path: Path) -> None:
    """Its socket stays open and nothing comes back: nobody tells that it does not run."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        flows = asyncio.Event()
        flows.set()

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 16):
                await flows.wait()
                writer.write(data)
            writer.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_unix_connection(instance_address.removeprefix("unix://"))
            await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

        instance_address = instance.replicas[R1].connection.address
        relay = await asyncio.start_unix_server(accept, tmp_path / "relay")
        instance.attach(R1, f"unix://{tmp_path}/relay")
        await replica.until(lambda: instance.replicas[R1].online and any(map(complete, replica.streams[-1:])))
        flows.clear()
        async with asyncio.timeout(FROZEN_SECONDS):
            await replica.until(lambda: not instance.replicas[R1].online)
        flows.set()
        await replica.until(lambda: instance.replicas[R1].online)
        relay.close()

    play(scenario)


def test_a_query_of_an_instance_that_is_deleted_is_answered(play: Callable[..., None]) -> None:
    """With an error, at once: its asker would wait for ever, and others for its place at the gateway."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        asked = c.Peek("p", c.IndexTarget(INDEX), Time(350), MapFilterProject(()), Finishing(), ())
        answer = asyncio.create_task(instance.answers.peek(asked))
        await replica.until(lambda: asked in replica.streams[0])
        instance.abandon()

        assert "deleted" in (await asyncio.wait_for(answer, BOUND)).message

    play(scenario)
