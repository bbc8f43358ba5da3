"""Importers of an index of a quarantined Dataflow learn that, and the Dataflow's name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.controller.answers.test_client_dataflows import over_input
from tests.controller.frontiers.test_index_imports import reader
from tests.controller.harness import INDEX, LAG, TERM, VIEW, at
from tests.controller.hydration.test_query_death_count import (
    PEEK,
    connect_with_index,
    dies,
    has_query,
    hydrated,
    looks_up_late,
)
from tests.controller.scripted import R1, Listening, ScriptedReplica, leadership, play
from tests.replica.plans import COLUMNS
from tests.waiting import BOUND
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.answers.client_dataflows import LAG_MS
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.hydration.quarantine import HydrationStanding
from tidemark_operator.errors import QueryRefused, SubscribeEnded
from tidemark_operator.fleet import fleet
from tidemark_operator.fleet.clients import quarantined_readers
from tidemark_operator.fleet.clients.quarantined_readers import SETTLED_SECONDS
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.query.one_shot import input_spans
from tidemark_operator.gateway.query.readable_relations import _index
from tidemark_protocol.ids import GlobalId, ReplicaId, Time
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import CopyToFailed, Description, Frontiers, PeekError
from tidemark_protocol.plan.dataflow import CopyToSink, SubscribeSink

__all__ = ["play"]

Asking = Callable[[RunningInstance], Coroutine[Any, Any, str]]
OTHER = ReplicaId("other")
TOLD = "waits for an index of Dataflow d, which is quarantined and hydrated on no replica"


def over_index(sink: SubscribeSink | CopyToSink, of: GlobalId = INDEX) -> Dataflow:
    description = replace(over_input(sink, 350), source_imports=(), index_imports=reader(of=of).index_imports)
    return Dataflow("s", description, LAG_MS)


async def queries_it(instance: RunningInstance) -> str:
    instance.core.dataflows.seed({INDEX: at(400)})
    description = replace(reader("q", as_of=350), until=Time(351))
    peek = replace(PEEK, target=c.IndexTarget(description.export_ids[0]))
    result = await instance.answers.query(Dataflow("q", description, LAG), peek)
    assert isinstance(result, PeekError)
    return result.message


async def copies_it(instance: RunningInstance) -> str:
    instance.core.dataflows.seed({INDEX: at(400)})
    result = await instance.clients.copy(over_index(CopyToSink(COLUMNS, "/data/ns/_copies/x", "csv")))
    assert isinstance(result, CopyToFailed)
    return result.message


async def subscribes_to_it(instance: RunningInstance, of: GlobalId = INDEX) -> str:
    instance.core.dataflows.seed({of: at(400)})
    async with instance.clients.subscribe(over_index(SubscribeSink(COLUMNS), of)) as subscription:
        with pytest.raises(SubscribeEnded) as ended:
            await subscription.next()
    return str(ended.value)


async def subscribes_to_what_reads_it(instance: RunningInstance) -> str:
    """An index that is computed from it."""
    instance.core.dataflows.seed({INDEX: at(400)})
    instance.core.create(Dataflow("ns/b", reader("b", as_of=350), LAG), TERM)
    return await subscribes_to_it(instance, GlobalId("b/i"))


@asynccontextmanager
async def maintained(instance: RunningInstance) -> AsyncIterator[None]:
    """Maintain the slots as an operator does."""
    all_of_them = Fleet(leadership)
    all_of_them._instances["ns", "default"] = instance
    maintaining = asyncio.create_task(all_of_them.run())
    try:
        yield
    finally:
        maintaining.cancel()


async def looked_at(instance: RunningInstance) -> None:
    """Once, and whoever is told has taken it."""
    quarantined_readers.tell(instance)
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "MAINTAIN_SECONDS", 0.001)
    monkeypatch.setattr(quarantined_readers, "SETTLED_SECONDS", 0.0)


def quarantine(listening: Listening) -> None:
    def standing(_: RunningInstance, owner: str) -> HydrationStanding:
        return HydrationStanding.QUARANTINED if owner == "ns/d" else HydrationStanding.CLEAR

    listening.standing = standing  # type: ignore[method-assign]


EVERY = [looks_up_late, queries_it, copies_it, subscribes_to_it, subscribes_to_what_reads_it]


@pytest.mark.parametrize("ask", EVERY)
@pytest.mark.parametrize("before", [False, True])
def test_a_waiting_reader_learns_of_the_quarantine(ask: Asking, before: bool, play: Callable[..., None]) -> None:
    """Also where that comes about while it waits. The next process is told nothing of it."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await connect_with_index(replica, instance)
        if before:
            await dies(replica, instance, "second")
            quarantine(listening)
            await dies(replica, instance, "third")
        asking = asyncio.create_task(ask(instance))
        await replica.until(lambda: has_query(replica.streams[-1]))
        if not before:
            await dies(replica, instance, "second")
            assert not asking.done()
            quarantine(listening)
            await dies(replica, instance, "third")
        async with maintained(instance):
            assert TOLD in await asyncio.wait_for(asking, BOUND)
        await dies(replica, instance, "fourth")
        assert not has_query(replica.streams[-1])

    play(scenario)


@pytest.mark.parametrize("ask", EVERY)
def test_a_reader_of_a_hydrated_dataflow_goes_on_waiting(ask: Asking, play: Callable[..., None]) -> None:
    """The dataflow that it reads goes on, whatever its standing; and so does the one that its replica is hydrating
    still."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await connect_with_index(replica, instance)
        await replica.until(lambda: instance.core.occupants(instance.online[0]) == ("ns/d",))
        asking = asyncio.create_task(ask(instance))
        await replica.until(lambda: has_query(replica.streams[-1]))
        quarantine(listening)
        await looked_at(instance)
        await hydrated(replica, instance)
        await looked_at(instance)
        assert not asking.done()
        asking.cancel()

    play(scenario)


@pytest.mark.parametrize("since", ["just back", "just lost"])
def test_a_replica_that_may_have_it_is_waited_for(
    since: str, play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not said yet what it has; and after a while nobody waits for it."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await connect_with_index(replica, instance)
        quarantine(listening)
        await dies(replica, instance, "second")
        if since == "just lost":
            monkeypatch.setattr(quarantined_readers, "SILENT_SECONDS", BOUND)
            instance.attach(OTHER, "unix:///nowhere")
        else:
            monkeypatch.setattr(quarantined_readers, "SETTLED_SECONDS", BOUND)
        asking = asyncio.create_task(subscribes_to_it(instance))
        await replica.until(lambda: has_query(replica.streams[-1]))
        await looked_at(instance)
        assert not asking.done()
        assert quarantined_readers.why_resting(instance, INDEX) is None

        monkeypatch.setattr(quarantined_readers, "SILENT_SECONDS", 0.0)
        monkeypatch.setattr(quarantined_readers, "SETTLED_SECONDS", 0.0)
        async with maintained(instance):
            assert TOLD in await asyncio.wait_for(asking, BOUND)

    play(scenario)


class Clock:
    """The operator's clock, which the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = now_ms()
        for where in ("fleet.running_instance", "fleet.clients.quarantined_readers"):
            monkeypatch.setattr(f"tidemark_operator.{where}.now_ms", lambda: self.ms)
        monkeypatch.setattr(quarantined_readers, "SETTLED_SECONDS", SETTLED_SECONDS)

    async def look(self, instance: RunningInstance, after_seconds: int) -> None:
        self.ms += 1000 * after_seconds
        await looked_at(instance)


def test_a_replica_that_comes_and_goes_for_ever_is_not_waited_for_for_ever(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica dies whenever it has begun: it is never away for long."""
    clock = Clock(monkeypatch)

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await connect_with_index(replica, instance)
        quarantine(listening)
        await dies(replica, instance, "second")
        instance.attach(OTHER, "unix:///nowhere")
        asking = asyncio.create_task(subscribes_to_it(instance))
        await replica.until(lambda: has_query(replica.streams[-1]))
        for _ in range(6):
            assert not asking.done()
            await clock.look(instance, 5)
            instance.described(OTHER, 99, Description("dies", None, 0, (), (), ()))
            await clock.look(instance, 5)
            instance.connection_lost(OTHER, 99, "it died")
        await clock.look(instance, 5)
        assert TOLD in await asyncio.wait_for(asking, BOUND)

    play(scenario)


def has_told(instance: RunningInstance) -> bool:
    index = instance.core.dataflows.index(INDEX)
    return index is not None and index.replicas[R1].input is not None


def test_a_replica_that_is_slow_to_report_is_waited_for(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator waits until the replica says where the quarantined dataflow is, for a minute at most."""
    clock = Clock(monkeypatch)

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await connect_with_index(replica, instance)
        quarantine(listening)
        for late in (False, True):
            await dies(replica, instance, f"late: {late}")
            asking = asyncio.create_task(subscribes_to_it(instance))
            await replica.until(lambda: has_query(replica.streams[-1]))
            await clock.look(instance, 1)
            await clock.look(instance, 50)
            assert not asking.done()
            assert quarantined_readers.why_resting(instance, INDEX) is None
            if late:
                await clock.look(instance, 10)
            else:
                replica.say(*(Frontiers(id, at(300), at(300), at(300)) for id in (INDEX, VIEW)))
                await replica.until(lambda: has_told(instance))
                await clock.look(instance, 1)
            assert TOLD in await asyncio.wait_for(asking, BOUND)

    play(scenario)


def test_a_reader_of_a_quarantined_dataflow_is_refused_at_once(play: Callable[..., None]) -> None:
    """Also where it was hydrated nowhere ever, so that no time is complete."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await connect_with_index(replica, instance)
        quarantine(listening)
        await dies(replica, instance, "second")
        with pytest.raises(QueryRefused, match=TOLD):
            input_spans(Registry(), instance, reader())
        with pytest.raises(QueryRefused, match=f"d.i cannot be read: it {TOLD}"):
            _index(instance, "d.i", INDEX)

        await hydrated(replica, instance)
        assert [span.write for span in input_spans(Registry(), instance, reader())] == [at(400)]
        assert _index(instance, "d.i", INDEX) is not None

    play(scenario)
