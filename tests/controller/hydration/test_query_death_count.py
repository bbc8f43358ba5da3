"""A query that replicas die of fails after the second death and is sent to no further process; and queries of lost
replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from tests.controller.answers.test_client_dataflows import over_input
from tests.controller.frontiers.test_index_imports import reader
from tests.controller.harness import INDEX, LAG, TERM, at
from tests.controller.scripted import Listening, ScriptedReplica, complete, play
from tests.protocol.samples import dataflow
from tests.replica.plans import COLUMNS
from tests.waiting import BOUND
from tidemark_operator.controller.answers.client_dataflows import LAG_MS
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import SubscribeEnded
from tidemark_operator.fleet.clients.query_death_count import MOST, ClientWork, QueryDeathCount
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_protocol.ids import GlobalId, ReplicaId, Time
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import CopyToFailed, Frontiers, PeekError, SubscribeBatch, SubscribeResponse
from tidemark_protocol.plan.dataflow import CopyToSink, SubscribeSink
from tidemark_protocol.plan.lir import MapFilterProject

__all__ = ["play"]

R1, S = ReplicaId("r1"), GlobalId("s")
PEEK = c.Peek("p", c.IndexTarget(INDEX), Time(350), MapFilterProject(()), Finishing(), ())
SAID = f"{MOST} replicas died while they computed it"
Asking = Callable[[RunningInstance], Coroutine[Any, Any, str]]


async def looks_up(instance: RunningInstance) -> str:
    result = await instance.answers.peek(PEEK)
    assert isinstance(result, PeekError)
    return result.message


async def queries(instance: RunningInstance) -> str:
    description = replace(dataflow("q", 300), sink_exports=(), until=Time(301))
    (index,) = description.export_ids
    peek = replace(PEEK, target=c.IndexTarget(index), timestamp=Time(300))
    result = await instance.answers.query(Dataflow("q", description, LAG), peek)
    assert isinstance(result, PeekError)
    return result.message


async def copies(instance: RunningInstance) -> str:
    sink = CopyToSink(COLUMNS, "/data/ns/_copies/x", "csv")
    result = await instance.clients.copy(Dataflow("s", over_input(sink), LAG_MS))
    assert isinstance(result, CopyToFailed)
    return result.message


async def subscribes(instance: RunningInstance) -> str:
    async with instance.clients.subscribe(subscribe()) as subscription:
        with pytest.raises(SubscribeEnded) as ended:
            await subscription.next()
    return str(ended.value)


def subscribe() -> Dataflow:
    return Dataflow("s", over_input(SubscribeSink(COLUMNS)), LAG_MS)


def count_deaths(listening: Listening, instance: RunningInstance) -> list[bool]:
    """Whenever another process answers, the one before has died; whether it was computing something for a client."""
    found: list[bool] = []

    def greeted(_: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        if listening.greetings and listening.greetings[-1] != incarnation:
            found.append(instance.died(replica))
        listening.greetings.append(incarnation)
        return ()

    listening.greeted = greeted  # type: ignore[method-assign]
    return found


def outcome_of(asking: asyncio.Task[str]) -> str:
    return str(asking.exception() or asking.result())


async def connect_with_index(replica: ScriptedReplica, instance: RunningInstance, stream: int = 0) -> None:
    """A connection, on which an index can be read."""
    await replica.until(lambda: len(replica.streams) > stream and complete(replica.streams[stream]))
    if stream == 0:
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        instance.flush()


async def hydrated(replica: ScriptedReplica, instance: RunningInstance) -> None:
    replica.say(Frontiers(INDEX, at(400), at(400), at(400)))
    await replica.until(lambda: instance.core.dataflows.is_hydrated(INDEX, R1))


async def dies(replica: ScriptedReplica, instance: RunningInstance, incarnation: str) -> None:
    replica.incarnation = incarnation
    replica.hang_up()
    await connect_with_index(replica, instance, len(replica.streams))


def has_query(stream: list[c.Command]) -> bool:
    """Whether a client's matter was told."""
    created = [m.dataflow for m in stream if isinstance(m, c.CreateDataflow)]
    return any(isinstance(m, c.Peek) for m in stream) or any(d.is_transient or d.name == "q" for d in created)


@pytest.mark.parametrize("ask", [looks_up, queries, copies, subscribes])
def test_crash_a_query_that_kills_replicas_fails_at_the_second_death(ask: Asking, play: Callable[..., None]) -> None:
    """It is told to the process after the first death, to that after the second not; what is installed always is."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        deaths = count_deaths(listening, instance)
        await connect_with_index(replica, instance)
        await hydrated(replica, instance)
        asking = asyncio.create_task(ask(instance))
        await replica.until(lambda: has_query(replica.streams[0]))

        await dies(replica, instance, "second")
        assert has_query(replica.streams[1])
        assert not asking.done()
        await hydrated(replica, instance)
        await dies(replica, instance, "third")
        assert SAID in await asyncio.wait_for(asking, BOUND)
        assert not has_query(replica.streams[2])
        computed = ask is not looks_up  # lookups are always under way: who is hydrating is more likely the cause
        assert deaths == [computed, computed]

        await dies(replica, instance, "fourth")
        assert deaths == [computed, computed, False]

    play(scenario)


@pytest.mark.parametrize("ask", [looks_up, queries, copies])
def test_a_query_of_lost_replicas_fails_after_a_while(
    ask: Asking, play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds room, or a place, that others could use; nothing of it is left on replicas that come back."""
    monkeypatch.setattr("tidemark_operator.fleet.running_instance.SILENT_SECONDS", 0.0)

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await connect_with_index(replica, instance)
        await hydrated(replica, instance)
        asking = asyncio.create_task(ask(instance))
        await replica.until(lambda: has_query(replica.streams[0]))
        instance.maintain()
        assert not asking.done()

        address = instance.replicas[R1].connection.address
        instance.detach(R1)
        async with asyncio.timeout(BOUND):
            while not asking.done():
                instance.maintain()
                await asyncio.sleep(0.001)
        assert "no replica of ComputeInstance default answers" in outcome_of(asking)
        instance.attach(R1, address)
        await connect_with_index(replica, instance, 1)
        assert not has_query(replica.streams[1])

    play(scenario)


def test_a_subscribe_waits_for_lost_replicas(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on when one is back, however long that takes."""
    monkeypatch.setattr("tidemark_operator.fleet.running_instance.SILENT_SECONDS", 0.0)

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await connect_with_index(replica, instance)
        async with instance.clients.subscribe(subscribe()) as subscription:
            await replica.until(lambda: has_query(replica.streams[0]))
            address = instance.replicas[R1].connection.address
            instance.detach(R1)
            instance.maintain()
            instance.attach(R1, address)
            await connect_with_index(replica, instance, 1)
            assert has_query(replica.streams[1])
            assert subscription.failure is None

    play(scenario)


async def looks_up_late(instance: RunningInstance) -> str:
    """A lookup that another replica could answer."""
    instance.core.dataflows.seed({INDEX: at(400)})
    return await looks_up(instance)


async def queries_it(instance: RunningInstance) -> str:
    instance.core.dataflows.seed({INDEX: at(400)})
    description = replace(reader("q", as_of=350), until=Time(351))
    peek = replace(PEEK, target=c.IndexTarget(description.export_ids[0]))
    return str(await instance.answers.query(Dataflow("q", description, LAG), peek))


async def subscribes_to_it(instance: RunningInstance) -> str:
    instance.core.dataflows.seed({INDEX: at(400)})
    description = replace(
        over_input(SubscribeSink(COLUMNS), 350), source_imports=(), index_imports=reader().index_imports
    )
    async with instance.clients.subscribe(Dataflow("s", description, LAG_MS)) as subscription:
        return str(await subscription.next())


@pytest.mark.parametrize("ask", [looks_up_late, queries_it, subscribes_to_it])
def test_a_query_that_waits_for_an_index_is_not_blamed(ask: Asking, play: Callable[..., None]) -> None:
    """Whoever hydrates the index there is: it is not excused, and its readers are not failed. Once it is hydrated
    there, they count."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        deaths = count_deaths(listening, instance)
        await connect_with_index(replica, instance)
        asking = asyncio.create_task(ask(instance))
        await replica.until(lambda: has_query(replica.streams[0]))
        for incarnation in ("second", "third", "fourth"):
            await dies(replica, instance, incarnation)
        assert (deaths, asking.done()) == ([False] * 3, False)

        await hydrated(replica, instance)
        await dies(replica, instance, "fifth")
        assert deaths[3:] == [ask is not looks_up_late]
        asking.cancel()

    play(scenario)


def test_a_connection_that_ends_is_no_death(play: Callable[..., None]) -> None:
    """The process is the same, and goes on with what it was asked."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        deaths = count_deaths(listening, instance)
        await connect_with_index(replica, instance)
        await hydrated(replica, instance)
        asking = asyncio.create_task(looks_up(instance))
        await replica.until(lambda: has_query(replica.streams[0]))
        for _ in range(MOST):
            await dies(replica, instance, "incarnation")
        assert has_query(replica.streams[-1])
        assert (deaths, asking.done()) == ([], False)
        asking.cancel()

    play(scenario)


def test_a_subscribe_that_was_told_its_beginning_is_not_the_cause(play: Callable[..., None]) -> None:
    """It runs for days; what ends replicas meanwhile is something else."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        deaths = count_deaths(listening, instance)
        await connect_with_index(replica, instance)
        async with instance.clients.subscribe(subscribe()) as subscription:
            for incarnation in ("second", "third", "fourth"):
                stream = replica.streams[-1]
                await replica.until(lambda stream=stream: has_query(stream))  # type: ignore[misc]
                replica.say(SubscribeResponse(S, SubscribeBatch(at(0), at(400), b"", None)))
                await replica.until(lambda: not instance.core.dataflows.is_beginning("s", R1))
                await dies(replica, instance, incarnation)
            assert (deaths, subscription.failure) == ([False] * 3, None)

    play(scenario)


def test_deaths_are_remembered_for_as_long_as_somebody_asks() -> None:
    """The deaths may be of replicas that never come back."""
    deaths, asked = QueryDeathCount(), {"a", "b"}
    deaths.connection_lost(ReplicaId("r1"), ClientWork(["a"], True))
    deaths.connection_lost(ReplicaId("r2"), ClientWork(["a", "b"], True))
    deaths.connection_lost(ReplicaId("r3"), ClientWork(["b"], False))
    assert deaths.died(ReplicaId("r1"), asked.__contains__).failed == []
    assert deaths.died(ReplicaId("r2"), asked.__contains__).failed == ["a"]
    assert (set(deaths._left), dict(deaths._deaths)) == ({"r3"}, {"a": 2, "b": 1})
    asked.clear()
    assert not deaths.died(ReplicaId("r1"), asked.__contains__).computed
    assert not deaths._left
    assert not deaths._deaths
