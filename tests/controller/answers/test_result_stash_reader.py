"""Stashed answers: read in pieces as the client takes them, then deleted, and never kept without a reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.controller.harness import INDEX, LAG, R1, R2, TERM, InstanceHarness, at
from tests.controller.scripted import PIECE_BYTES, Listening, ScriptedReplica, complete, play
from tests.protocol.samples import dataflow
from tests.waiting import BOUND
from tidemark_operator.controller.answers.peeks import PeekAnswer
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import AnswerLost
from tidemark_operator.fleet.clients.pending_queries import Answer
from tidemark_operator.fleet.clients.result_stash_reader import stash_pieces
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission.fair_queue import FairQueue, QueueHold
from tidemark_operator.gateway.streams.answer_stream import send_answer
from tidemark_protocol.ids import Time
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import Frontiers, PeekResponse, PeekRows, PeekStashed
from tidemark_protocol.plan.lir import MapFilterProject

__all__ = ["play"]

DATA = bytes(range(256)) * 40
STASHED = PeekStashed(3, len(DATA))
ASKED = c.Peek("p", c.IndexTarget(INDEX), Time(350), MapFilterProject(()), Finishing(), ())
CANCEL = c.CancelPeek("p")


def test_must_tell_the_keeper_last_that_no_answer_is_needed() -> None:
    """The others at once, with the hold; an answer that another stashed meanwhile goes with that, and is no news."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1, R2)
    harness.report(R1, at(500))
    harness.instance.peek(ASKED)
    harness.sent(R1), harness.sent(R2)

    assert harness.hear(R1, PeekResponse("p", STASHED)) == [PeekAnswer("p", STASHED)]
    assert (harness.sent(R1), harness.sent(R2)) == ([], [CANCEL])
    assert harness.hear(R2, PeekResponse("p", STASHED)) == []
    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None
    assert (index.holds, harness.instance.peeks.keeper("p")) == ({}, R1)
    for _ in range(2):
        harness.instance.cancel_peek("p")
    assert (harness.sent(R1), harness.sent(R2)) == ([CANCEL], [])


def test_crash_an_answer_is_lost_with_its_keeper_and_not_asked_again() -> None:
    """On its next connection the replica is told nothing of the peek; another's answer is not taken for it."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1, R2)
    harness.report(R1, at(500))
    harness.instance.peek(ASKED)
    harness.hear(R1, PeekResponse("p", STASHED))
    harness.instance.disconnect(R1)

    assert harness.instance.peeks.keeper("p") is None
    assert harness.hear(R2, PeekResponse("p", PeekRows(b"", 0))) == []
    harness.connect(R1)
    harness.instance.cancel_peek("p")
    assert not any(isinstance(m, c.Peek | c.CancelPeek) for m in harness.sent(R1))


async def stashed(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> Answer:
    """The answer of a peek that the replica has stashed."""
    await install_index(replica, instance)
    answer = asyncio.create_task(instance.answers.peek(ASKED))
    await replica.until(lambda: ASKED in replica.streams[0])
    replica.stash["p"] = DATA
    replica.say(PeekResponse("p", STASHED))
    return await asyncio.wait_for(answer, BOUND)


async def install_index(replica: ScriptedReplica, instance: RunningInstance) -> None:
    """A dataflow that can be peeked at."""
    await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
    instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
    instance.flush()
    replica.say(Frontiers(INDEX, at(400), at(400), at(400)))


def test_a_large_answer_is_fetched_in_pieces_and_then_let_go(play: Callable[..., None]) -> None:
    """Whole and in order; the replica may forget it only afterwards."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        answer = await stashed(replica, instance, listening)
        assert answer == STASHED
        assert [p async for p in stash_pieces(instance, "p", STASHED.size)] == [
            DATA[start : start + PIECE_BYTES] for start in range(0, len(DATA), PIECE_BYTES)
        ]
        assert CANCEL not in replica.streams[0]
        instance.answers.let_go("p")
        await replica.until(lambda: CANCEL in replica.streams[0])

    play(scenario)


class Client:
    """Takes a message when the test lets it; `held`: the bytes that it was offered and has not taken."""

    def __init__(self) -> None:
        self.lets, self.held, self.most, self.taken = asyncio.Semaphore(0), 0, 0, b""

    async def write(self, message: bytes) -> None:
        self.held += len(message)
        self.most = max(self.most, self.held)
        await self.lets.acquire()
        self.held -= len(message)
        self.taken += message


def test_a_client_that_does_not_read_holds_one_piece(play: Callable[..., None]) -> None:
    """The next is fetched when the one before has been taken: what is held does not grow with the answer."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await stashed(replica, instance, listening)
        client = Client()
        held = QueueHold(FairQueue("bytes", 1, "wait"), "a caller", 0)
        giving = asyncio.create_task(send_answer(client, stash_pieces(instance, "p", STASHED.size), held))
        count = -(-len(DATA) // PIECE_BYTES)
        for taken in range(count):
            await replica.until(lambda: client.held > 0)
            assert len(replica.fetched) == taken + 1
            client.lets.release()
            await replica.until(lambda taken=taken: len(client.taken) > taken * PIECE_BYTES)  # type: ignore[misc]
        await asyncio.wait_for(giving, BOUND)

        assert (client.taken, client.most) == (DATA, PIECE_BYTES)

    play(scenario)


@pytest.mark.parametrize("end", ["replica", "answer", "liar"])
def test_crash_a_reader_is_told_that_the_answer_is_lost(end: str, play: Callable[..., None]) -> None:
    """The connection ended, the replica does not have it any more, or has less of it than it said."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await stashed(replica, instance, listening)
        reading = stash_pieces(instance, "p", STASHED.size)
        first = await anext(reading)
        if end == "replica":
            replica.hang_up()
            await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))
        elif end == "answer":
            replica.stash.clear()
        else:
            replica.stash["p"] = DATA[:PIECE_BYTES]
        with pytest.raises(AnswerLost, match="ask again"):
            await read_to_end(reading)

        assert first == DATA[:PIECE_BYTES]
        assert ASKED not in replica.streams[-1] or end != "replica"

    play(scenario)


async def read_to_end(reading: AsyncIterator[Any]) -> None:
    async for _ in reading:
        pass


def test_crash_an_asker_that_goes_in_the_moment_of_its_answer_leaves_nothing(play: Callable[..., None]) -> None:
    """The answer is there, the asker is not: its keeper is told."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await install_index(replica, instance)
        answer = asyncio.create_task(instance.answers.peek(ASKED))
        await replica.until(lambda: ASKED in replica.streams[0])
        (link,) = instance.core.links
        instance.received(R1, link.connection, [PeekResponse("p", STASHED)])
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answer
        await replica.until(lambda: CANCEL in replica.streams[0])

    play(scenario)
