"""Subscribes, copies, lookups and queries of an index that some replicas are too old for: none waits for those
replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.controller.answers.test_client_dataflows import S
from tests.controller.frontiers.test_index_imports import reader
from tests.controller.harness import EMPTY, INDEX, LAG, R1, R2, TERM, VIEW, InstanceHarness, at, facade
from tests.controller.hydration.test_quarantined_readers import (
    Asking,
    Clock,
    copies_it,
    looked_at,
    over_index,
    queries_it,
    subscribes_to_it,
)
from tests.controller.hydration.test_query_death_count import PEEK, looks_up_late
from tests.controller.replicas.test_plan_features import REFRESHED, connect
from tests.controller.scripted import Listening, leadership
from tests.protocol.samples import dataflow
from tests.replica.plans import COLUMNS
from tests.waiting import BOUND
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.answers.copies import CopyAnswer
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.controller_events import Notice
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import QueryRefused, SubscribeEnded
from tidemark_operator.fleet.clients.status_meaning import failure
from tidemark_operator.fleet.running_instance import SILENT_SECONDS, RunningInstance
from tidemark_operator.gateway.query.one_shot import input_spans
from tidemark_operator.gateway.query.readable_relations import _index
from tidemark_operator.handlers.reconcile.reconcile_loop import ReconcileLoop
from tidemark_operator.handlers.status.statuses import _incompatible
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import (
    CopyToDone,
    CopyToFailed,
    CopyToResponse,
    Description,
    Failure,
    FailureKind,
    PeekError,
    Response,
    SubscribeBatch,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import CopyToSink, DataflowDescription, SubscribeSink
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES

TOO_OLD = "the image of replica r1 does not know refresh"
COPY, SUBSCRIBE = CopyToSink(COLUMNS, "/data/ns/_copies/x", "csv"), SubscribeSink(COLUMNS)
DIVIDED = SubscribeResponse(S, SubscribeBatch(at(0), EMPTY, b"", "division by zero", 0, 0))
FULL = CopyToResponse(S, CopyToFailed("the disk is full"))
EVERY = pytest.mark.parametrize("ask", [looks_up_late, queries_it, copies_it, subscribes_to_it])


def indexed() -> DataflowDescription:
    """An index, and a view that needs a word."""
    return replace(dataflow("d", 300), sink_exports=REFRESHED.sink_exports)


def harness_with_older(*older: ReplicaId) -> InstanceHarness:
    """R2 understands all of it."""
    harness = InstanceHarness(upper=500)
    harness.instance.create(Dataflow("ns/d", indexed(), LAG, stays=True), TERM)
    for replica in older:
        connect(harness, replica)
    connect(harness, R2, *SUPPORTED_FEATURES)
    harness.report(R2, at(450), INDEX)
    return harness


def end_messages(news: list[Notice]) -> list[str | None]:
    """The messages to clients about a failure."""
    errors = [each.batch.error for each in news if isinstance(each, SubscribeAdvanced)]
    return errors + [each.result.message for each in news if isinstance(each, CopyAnswer) and _failed(each)]  # type: ignore[union-attr]


def _failed(answer: CopyAnswer) -> bool:
    return isinstance(answer.result, CopyToFailed)


@pytest.mark.parametrize("older", [(), (R1,)], ids=["alone", "beside an older one"])
@pytest.mark.parametrize(
    ("sink", "response", "why"), [(SUBSCRIBE, DIVIDED, "division by zero"), (COPY, FULL, "the disk is full")]
)
def test_a_dataflow_that_fails_on_all_its_replicas_has_failed(
    sink: SubscribeSink | CopyToSink, response: Response, why: str, older: tuple[ReplicaId, ...]
) -> None:
    """Its client waited for ever for the one that has never heard of it."""
    harness = harness_with_older(*older)
    harness.instance.create(over_index(sink), TERM)
    assert end_messages(harness.hear(R2, response)) == [why]


@pytest.mark.parametrize(("sink", "response"), [(SUBSCRIBE, DIVIDED), (COPY, FULL)])
def test_another_that_was_told_of_it_may_go_on(sink: SubscribeSink | CopyToSink, response: Response) -> None:
    """The other one may be lost, or come back with an older image: then the first one's error is the answer."""
    r3 = ReplicaId("r3")
    harness = harness_with_older(R1)
    connect(harness, r3, *SUPPORTED_FEATURES)
    harness.instance.create(over_index(sink), TERM)
    assert end_messages(harness.hear(R2, response)) == []
    assert end_messages(harness.instance.disconnect(R1)) == []
    assert len(end_messages(harness.instance.disconnect(r3, harness.now))) == 1


def test_nothing_has_failed_before_a_replica_was_sent_the_dataflow() -> None:
    """The next replica that gets the dataflow may run it."""
    harness = harness_with_older(R1)
    harness.instance.create(over_index(COPY), TERM)
    assert end_messages(harness.hear(R2, FULL)) == ["the disk is full"]
    harness = harness_with_older(R1)
    harness.instance.create(over_index(COPY), TERM)
    assert end_messages(harness.instance.disconnect(R2, harness.now)) == []
    connect(harness, R2, *SUPPORTED_FEATURES)
    assert CopyAnswer(S, CopyToDone(7)) in harness.hear(R2, CopyToResponse(S, CopyToDone(7)))


def test_a_lookup_of_one_that_is_too_old_says_why() -> None:
    """At once; not as if that one had failed."""
    harness = harness_with_older(R1)
    (answer,) = harness.instance.peek(PEEK, R1)
    assert answer.result.message == f"{TOO_OLD}: upgrade it, or ask another one"  # type: ignore[union-attr]
    assert harness.instance.peeks.pending() == []


def test_a_failure_has_the_message_of_the_computing_replica() -> None:
    harness = harness_with_older(R1)
    harness.hear(R2, Failure(INDEX, FailureKind.STEP, "no room"))
    index = harness.instance.dataflows.index(INDEX)
    assert index is not None
    assert failure([index]) == "no room"


@asynccontextmanager
async def running(**replicas: tuple[str, ...] | None) -> AsyncIterator[RunningInstance]:
    """Replicas that understand these words; None: one that is to be there, and is not heard."""
    leadership.term = 4
    shards = InstanceHarness(upper=500).shards
    instance = RunningInstance("ns", c.InstanceConfig("default", "/data"), shards, leadership, Listening())
    instance.core.create(Dataflow("ns/d", indexed(), LAG, stays=True), TERM)
    try:
        for name, words in replicas.items():
            instance.attach(ReplicaId(name), "unix:///nowhere")
            if words is not None:
                described(instance, ReplicaId(name), words)
        yield instance
    finally:
        await instance.close()


def described(instance: RunningInstance, replica: ReplicaId, words: tuple[str, ...]) -> None:
    instance.described(replica, 9, Description("incarnation", None, 0, (), (), (), words))


def play(scenario: Callable[[RunningInstance], Awaitable[None]], **replicas: tuple[str, ...] | None) -> None:
    async def played() -> None:
        async with running(**replicas) as instance:
            await scenario(instance)

    asyncio.run(played())


async def start_asking(ask: Asking, instance: RunningInstance) -> asyncio.Task[str]:
    asking = asyncio.create_task(cast(Any, ask(instance)))
    await asyncio.sleep(0)
    return asking


@EVERY
def test_a_waiting_reader_learns_that_all_replicas_are_too_old(ask: Asking) -> None:
    """At once: nobody is on the way. And nothing of it is left."""

    async def scenario(instance: RunningInstance) -> None:
        asking = await start_asking(ask, instance)
        await looked_at(instance)
        error = await asyncio.wait_for(asking, BOUND)
        assert error.startswith(f"{TOO_OLD}, so no connected replica can compute it")
        assert instance.core.dataflows.owners() == ["ns/d"]
        assert instance.core.peeks.pending() == []
        assert instance.in_vain.keys() <= {"q", "s", "p"}

    play(scenario, r1=())


@EVERY
@pytest.mark.parametrize("lost", [False, True], ids=["not heard yet", "lost"])
def test_one_that_may_understand_it_is_waited_for(ask: Asking, lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator waits as for any replica that is away: for a minute, and then clients are told. One that comes back
    has until it answers."""
    clock = Clock(monkeypatch)

    async def scenario(instance: RunningInstance) -> None:
        if lost:
            described(instance, R2, SUPPORTED_FEATURES)
        asking = await start_asking(ask, instance)
        await looked_at(instance)
        if lost:
            instance.connection_lost(R2, 9, "it was killed")
        await clock.look(instance, 50)
        assert not asking.done()
        described(instance, R2, SUPPORTED_FEATURES)
        await clock.look(instance, 1000)
        assert not asking.done()
        instance.connection_lost(R2, 9, "it was killed")
        await clock.look(instance, 50)
        assert not asking.done()
        await clock.look(instance, 11)
        assert (await asyncio.wait_for(asking, BOUND)).startswith(TOO_OLD)

    play(scenario, r1=(), r2=None)


@EVERY
def test_one_that_comes_and_goes_is_not_waited_for_for_ever(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is cut off whenever it is reached has never been lost for long: it is attached anew each time."""
    clock = Clock(monkeypatch)

    async def scenario(instance: RunningInstance) -> None:
        asking = await start_asking(ask, instance)
        for address in range(20):
            instance.attach(R2, f"unix:///nowhere/{address}")
            await clock.look(instance, 4)
        assert (await asyncio.wait_for(asking, BOUND)).startswith(TOO_OLD)

    play(scenario, r1=(), r2=None)


def test_one_that_is_away_and_as_old_is_not_waited_for() -> None:
    async def scenario(instance: RunningInstance) -> None:
        instance.connection_lost(R2, 9, "it was killed")
        asking = await start_asking(copies_it, instance)
        await looked_at(instance)
        assert (await asyncio.wait_for(asking, BOUND)).startswith(TOO_OLD)

    play(scenario, r1=(), r2=())


def test_a_subscribe_that_one_alone_tells_which_is_too_old_ends() -> None:
    """At once, whoever else understands it."""

    async def scenario(instance: RunningInstance) -> None:
        instance.core.dataflows.seed({INDEX: at(400)})
        async with instance.clients.subscribe(replace(over_index(SUBSCRIBE), target=R1)) as subscription:
            await looked_at(instance)
            with pytest.raises(SubscribeEnded, match=f"{TOO_OLD}: upgrade it, or ask another one"):
                await asyncio.wait_for(subscription.next(), BOUND)

    async def of_the_newer(instance: RunningInstance) -> None:
        instance.core.dataflows.seed({INDEX: at(400)})
        async with instance.clients.subscribe(replace(over_index(SUBSCRIBE), target=R2)) as subscription:
            await looked_at(instance)
            assert subscription.failure is None

    play(scenario, r1=(), r2=SUPPORTED_FEATURES)
    play(of_the_newer, r1=(), r2=SUPPORTED_FEATURES)


def test_a_reader_is_refused_at_once_if_all_replicas_are_too_old() -> None:
    """Not as if it were to be complete soon."""

    async def scenario(instance: RunningInstance) -> None:
        with pytest.raises(QueryRefused, match=TOO_OLD):
            input_spans(Registry(), instance, reader())
        with pytest.raises(QueryRefused, match=f"d.i cannot be read: {TOO_OLD}"):
            _index(instance, "d.i", INDEX)
        instance.attach(R2, "unix:///nowhere")
        instance.core.dataflows.seed({INDEX: at(400)})
        assert _index(instance, "d.i", INDEX) is not None
        assert [span.write for span in input_spans(Registry(), instance, reader())] == [at(400)]

    play(scenario, r1=())


def test_no_image_is_too_old_while_a_replica_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its condition would come and go with each restart of the one replica that understands it."""
    clock = Clock(monkeypatch)

    async def scenario(instance: RunningInstance) -> None:
        exports = instance.core.dataflows.collections_of("ns/d")
        assert _incompatible(instance, exports, clock.ms) == ""
        instance.connection_lost(R2, 9, "it was killed")
        assert _incompatible(instance, exports, clock.ms) == ""
        clock.ms += 1000 * int(SILENT_SECONDS)
        assert _incompatible(instance, exports, clock.ms).startswith(TOO_OLD)
        described(instance, R2, SUPPORTED_FEATURES)
        assert _incompatible(instance, exports, clock.ms) == ""
        instance.detach(R2)
        assert _incompatible(instance, exports, clock.ms).startswith(TOO_OLD)

    play(scenario, r1=(), r2=SUPPORTED_FEATURES)


def test_an_event_names_failed_dataflows_and_not_unsent_ones() -> None:
    """A replica that is too old says so in its own conditions; the Dataflow does where none computes it."""
    harness, warned = harness_with_older(R1), list[str]()
    harness.hear(R2, Failure(VIEW, FailureKind.STEP, "no room"))

    async def warn(key: object, uid: str, reason: str, message: str) -> None:
        warned.append(message)

    handlers = SimpleNamespace(
        running=lambda namespace, name: facade(harness.instance), events=SimpleNamespace(warn=warn)
    )
    state = SimpleNamespace(
        key=SimpleNamespace(namespace="ns"), uid="u", instance="default", marks=[0], installation=lambda _: "ns/d"
    )
    asyncio.run(ReconcileLoop._warn(cast(Any, SimpleNamespace(_context=handlers)), cast(Any, state)))
    assert warned == [f"replica r2, {VIEW}: step failed: no room"]


def test_a_query_of_one_that_is_too_old_says_why() -> None:
    """A dataflow of its own is told to all, but that one."""

    async def scenario(instance: RunningInstance) -> None:
        instance.core.dataflows.seed({INDEX: at(400)})
        description = replace(reader("q", as_of=350), until=351)  # type: ignore[arg-type]
        peek = replace(PEEK, target=c.IndexTarget(description.export_ids[0]))
        answer = await instance.answers.query(Dataflow("q", description, LAG), peek, R1)
        assert answer == PeekError(f"{TOO_OLD}: upgrade it, or ask another one")

    play(scenario, r1=(), r2=SUPPORTED_FEATURES)
