"""A query while no replica answers: it waits for a replica that should run, and for no other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.controller.harness import R1, at
from tests.gateway.registries import registry, shard_of
from tests.gateway.server.test_metrics import fleet
from tests.waiting import BOUND
from tidemark_operator.errors import AnswerTimedOut, NoCompleteTime, NoReplicaAnswers, QueryRefused, TooMany, Waiting
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission import wait_policy
from tidemark_operator.gateway.admission.fair_queue import FairQueue
from tidemark_operator.gateway.query.query import require_instance
from tidemark_operator.gateway.query.read_time import ReadableTimes, TimeRequest, choose_time
from tidemark_operator.gateway.query.readable_relations import find_relation
from tidemark_operator.gateway.query.strict_read import latest_ingested
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.responses import DescribedShard

SOURCE = Parent(DATA_SOURCES.kind, "s")
READS = GlobalId("s.a")


def memory() -> FairQueue:
    return FairQueue("bytes", 100, "wait", waiting=9)


def context_of(instances: Fleet) -> ReconcileContext:
    return cast(ReconcileContext, SimpleNamespace(registry=registry(), fleet=instances, running=instances.get))


def lost_replica(instances: Fleet) -> ReplicaState:
    """R1 of the instance is to run, and does not answer."""
    state = ReplicaState(cast(Any, None), cast(Any, None), asyncio.Event(), silent_since_ms=1)
    instance(instances).replicas[R1] = state
    return state


def instance(instances: Fleet) -> RunningInstance:
    running = instances.get("ns", "default")
    assert running is not None
    return running


def asks(context: ReconcileContext) -> dict[str, Callable[[], object]]:
    """Every way in which a query looks for somebody who answers."""
    return {
        "a relation": lambda: find_relation(context, "ns", READS, SOURCE),
        "operators": lambda: require_instance(context, "ns", "default"),
    }


@pytest.mark.parametrize("way", ["a relation", "operators"])
def test_a_query_waits_for_a_replica_that_is_to_run(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back at the third look; whatever it has to say of what is read, it has said by then."""
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", BOUND)
    instances = fleet()
    state, looks = lost_replica(instances), iter([False, False, True])
    ask = asks(context_of(instances))[way]

    def look() -> object:
        state.online = next(looks)
        if state.online:
            told_of_the_table(instances)
        return ask()

    assert asyncio.run(wait_policy.when_possible(look)) is not None
    assert list(looks) == []


def told_of_the_table(instances: Fleet) -> None:
    shard, book = shard_of("s.a"), instances.book("ns")
    book.register(shard.shard_id, shard.location)
    book.observe(shard.shard_id, at(500), at(0))


def test_a_relation_of_which_nothing_is_reported_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case comes after a restart of the operator, whose replicas are connected before they report frontiers."""
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wait_policy, "COMMON_TIME_SECONDS", BOUND)
    instances = fleet()
    lost_replica(instances).online = True
    ask, looks = asks(context_of(instances))["a relation"], iter([False, False, True])

    def look() -> object:
        if next(looks):
            told_of_the_table(instances)
        return ask()

    assert asyncio.run(wait_policy.when_possible(look)) is not None
    assert list(looks) == []


@pytest.mark.parametrize("way", ["a relation", "operators"])
def test_a_replica_that_does_not_come_back_is_waited_for_only_for_a_while(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the refusal says whose replicas do not answer, and where that is explained."""
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", 0.01)
    instances = fleet()
    lost_replica(instances)
    with pytest.raises(NoReplicaAnswers, match=r"no replica of ComputeInstance default answers \(`kubectl describe"):
        asyncio.run(wait_policy.when_possible(asks(context_of(instances))[way]))


@pytest.mark.parametrize("way", ["a relation", "operators"])
def test_an_instance_without_replicas_is_refused_at_once(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is on the way."""
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", float("inf"))
    with pytest.raises(QueryRefused, match="ComputeInstance default has no replica that is to run"):
        asyncio.run(wait_policy.when_possible(asks(context_of(fleet()))[way]))


def test_a_strict_query_waits_for_a_replica_that_knows_the_ingested_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any instance of the namespace can; one that is silent is waited for, and without any it is refused."""
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", 0.01)
    instances = fleet()
    with pytest.raises(QueryRefused, match=r"strict query needs .* which no replica can report: .* has no replica"):
        asyncio.run(latest_ingested(context_of(instances), "ns", [READS]))
    lost_replica(instances)
    with pytest.raises(
        NoReplicaAnswers, match="a strict query needs the source tables' frontiers, which no replica can report"
    ):
        asyncio.run(latest_ingested(context_of(instances), "ns", [READS]))
    with pytest.raises(QueryRefused, match="no ComputeInstance in namespace ns has the storage of /data/s"):
        asyncio.run(latest_ingested(context_of(Fleet(cast(Leadership, None))), "ns", [READS]))


def test_a_strict_query_waits_where_the_replica_dies_while_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator comes to know a moment later that it is gone. The next answers say that the store is away, then how
    far the table is."""
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    instances = fleet()
    lost_replica(instances).online = True
    shard, gone = shard_of("s.a"), Waiting("NoReplicaOnline", "waiting for a replica")
    described = DescribedShard(shard.shard_id, True, upper=at(500), since=at(0), term=WriterTerm(1))
    answers: list[DescribedShard | Waiting] = [gone, replace(described, error="the store is away"), described]

    async def describe(_: object) -> tuple[object, object]:
        answer = answers.pop(0)
        if isinstance(answer, Waiting):
            raise answer
        return R1, SimpleNamespace(shards=(answer,))

    monkeypatch.setattr(instance(instances), "describe", describe)
    assert asyncio.run(latest_ingested(context_of(instances), "ns", [READS])) == 499
    assert answers == []


def test_a_time_is_waited_for_as_long_after_a_replica_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator knows no complete time while no replica reports one: the wait for a time begins with a report."""
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", float("inf"))
    monkeypatch.setattr(wait_policy, "COMMON_TIME_SECONDS", float("inf"))
    answers = iter([NoReplicaAnswers("r1"), NoCompleteTime("yet"), NoReplicaAnswers("r1"), NoCompleteTime("yet"), None])

    def look() -> int:
        if (why := next(answers)) is not None:
            raise why
        return choose_time([ReadableTimes("t", at(0), at(90))], TimeRequest())

    assert asyncio.run(wait_policy.when_possible(look)) == 89
    assert next(answers, "no more") == "no more"


def test_must_waiting_for_a_replica_keeps_no_caller_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is another's until it can be answered; then it has one again, and what it holds is of that moment."""
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", float("inf"))

    async def play() -> None:
        room, answers, lost_one = memory(), asyncio.Event(), asyncio.Event()

        def look() -> int:
            if not answers.is_set():
                lost_one.set()
                raise NoReplicaAnswers("r1")
            return room.free

        async def ask() -> int:
            async with wait_policy.hold_when_possible(room, 100, "anne", look) as (free, _):
                return free

        waiting = asyncio.create_task(ask())
        await lost_one.wait()
        second = wait_policy.hold_when_possible(room, 100, "anne", lambda: room.free)
        async with asyncio.timeout(BOUND), second as (free, held):
            assert free == 50
            answers.set()
            held.shrink(0)
            assert await waiting == 50
        assert room.free == 100

    asyncio.run(play())


def test_a_vain_wait_for_a_replica_frees_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it came in: the wait is one."""
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", 0.01)
    room, looks = memory(), itertools.count()

    def look() -> None:
        if next(looks) % 2 == 0:  # within the room alone
            raise NoReplicaAnswers("r1")

    async def ask() -> None:
        async with asyncio.timeout(BOUND), wait_policy.hold_when_possible(room, 100, "anne", look):
            raise AssertionError("nobody answered")

    with pytest.raises(NoReplicaAnswers, match="r1"):
        asyncio.run(ask())
    assert room.free == 100


def test_a_query_past_its_time_limit_is_ended() -> None:
    """The query ends as if its client had gone; one that ends in time, or fails, is not touched."""
    gone = []

    async def compute(seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            gone.append(seconds)
            raise
        return "rows"

    async def play() -> None:
        async with wait_policy.time_limit(BOUND):
            assert await compute(0) == "rows"
        with pytest.raises(NoReplicaAnswers):
            async with wait_policy.time_limit(BOUND):
                raise NoReplicaAnswers("r1")
        with pytest.raises(AnswerTimedOut, match=r"the answer took more than 0\.01 s, the gateway\'s limit"):
            async with wait_policy.time_limit(0.01):
                await compute(BOUND)

    asyncio.run(play())
    assert gone == [BOUND]


def test_must_statements_that_wait_for_a_replica_leave_calls_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of statements of each caller may wait, outside of the memory and before they get it; one that waits for
    a time does not count. Waiting ones keep their places until they go on."""
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", BOUND)

    async def play() -> None:
        places, answers = FairQueue("queries that wait for a replica", 4, "try again"), asyncio.Event()

        def look() -> str:
            if not answers.is_set():
                raise NoReplicaAnswers("r1")
            return "rows"

        async def ask(caller: str) -> str:
            slot = partial(places.hold, caller)
            await wait_policy.when_possible(look, slot=slot)
            async with wait_policy.hold_when_possible(memory(), 1, caller, look, slot) as (rows, _):
                return rows

        async def come(caller: str) -> str:
            async with wait_policy.hold_when_possible(memory(), 1, caller, look, partial(places.hold, caller)) as (
                rows,
                _,
            ):
                return rows

        waiting = [asyncio.create_task(each) for each in (ask("anne"), come("anne"), ask("bob"))]
        for _ in range(50):
            await asyncio.sleep(0.001)
            with pytest.raises(TooMany, match="2 queries that wait for a replica of anne run already"):
                await ask("anne")
        with pytest.raises(NoCompleteTime):
            await wait_policy.when_possible(never_complete, 0.01, partial(places.hold, "anne"))
        answers.set()
        assert await asyncio.gather(*waiting) == ["rows"] * 3
        assert places.free == 4

    asyncio.run(asyncio.wait_for(play(), BOUND))


def never_complete() -> None:
    raise NoCompleteTime("yet")
