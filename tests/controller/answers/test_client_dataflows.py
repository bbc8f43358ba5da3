"""Subscribes and copies in an instance: holds, compaction, late replicas, and cleanup."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, INDEX, INPUT, R1, R2, TERM, InstanceHarness, at
from tests.replica.plans import COLUMNS, transient
from tidemark_operator.controller.answers.client_dataflows import LAG_MS
from tidemark_operator.controller.answers.copies import CopyAnswer
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.controller_events import DataflowGone
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import SubscribeEnded
from tidemark_operator.fleet.clients.subscription import Backlog, Subscription
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import (
    CopyToDone,
    CopyToDropped,
    CopyToResponse,
    Frontiers,
    SubscribeBatch,
    SubscribeDropped,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import CopyToSink, DataflowDescription, IndexImport, SubscribeSink
from tidemark_protocol.types import ColumnType

S = GlobalId("s")


def create(harness: InstanceHarness, sink: SubscribeSink | CopyToSink, as_of: int = 300) -> DataflowDescription:
    """The client's dataflow, over the input."""
    description = over_input(sink, as_of)
    harness.instance.create(Dataflow("s", description, LAG_MS), TERM)
    return description


def over_input(sink: SubscribeSink | CopyToSink, as_of: int = 300) -> DataflowDescription:
    description = replace(transient("s", sink), as_of=Time(as_of))
    (source,) = description.source_imports
    return replace(description, source_imports=(replace(source, shard=replace(source.shard, shard_id=INPUT)),))


def batch(harness: InstanceHarness, replica: ReplicaId, lower: int, upper: Frontier, part: int = 0) -> list[object]:
    return list(harness.hear(replica, SubscribeResponse(S, SubscribeBatch(at(lower), upper, b"", None, 0, part))))


def batches(harness: InstanceHarness, replica: ReplicaId, upper: Frontier) -> list[SubscribeAdvanced]:
    """The messages to the client about the replica's first batch."""
    return [news for news in batch(harness, replica, 0, upper) if isinstance(news, SubscribeAdvanced)]


def held(harness: InstanceHarness) -> Frontier | None:
    shard = harness.shards.get(INPUT)
    assert shard is not None
    return shard.holds.get("export s")


def refused(harness: InstanceHarness, replica: ReplicaId) -> str | None:
    """The reason why its connection must end."""
    return harness.instance._links[replica].refused


def test_a_subscribe_is_scheduled_at_once_and_never_allowed_to_write() -> None:
    """Also where hydrations of others fill every place."""
    harness = InstanceHarness()
    harness.connect(R1)
    harness.sent(R1)
    description = create(harness, SubscribeSink(COLUMNS))

    assert harness.sent(R1) == [c.CreateDataflow(description), c.Schedule(S)]


def test_inputs_are_held_for_what_has_not_been_told() -> None:
    """One time before it, so that a replica which comes late begins where the client goes on; within a time, there."""
    harness = InstanceHarness()
    harness.connect(R1)
    create(harness, SubscribeSink(COLUMNS))
    assert held(harness) == at(300)
    batch(harness, R1, 0, at(301), 1 << 63)
    harness.maintain()
    assert held(harness) == at(300)
    harness.hear(R1, SubscribeResponse(S, SubscribeBatch(at(301), at(400), b"", None, 1 << 63, 0)))
    harness.maintain()
    assert held(harness) == at(399)

    harness.connect(R2)
    (created,) = [m for m in harness.sent(R2) if isinstance(m, c.CreateDataflow)]
    assert created.dataflow.as_of == 399


def test_a_replica_that_lags_keeps_its_inputs() -> None:
    """Reports do not wait for it, but its inputs stay readable."""
    harness = InstanceHarness()
    harness.connect(R1, R2)
    create(harness, SubscribeSink(COLUMNS))
    batch(harness, R1, 0, at(400))
    batch(harness, R2, 0, at(310))
    harness.maintain()

    assert held(harness) == at(309)


def test_must_not_take_frontiers_for_a_subscribe() -> None:
    """A replica that reports what it must not: nothing is compacted that the client has not been told."""
    harness = InstanceHarness()
    harness.connect(R1)
    create(harness, SubscribeSink(COLUMNS))
    assert harness.hear(R1, Frontiers(S, at(450), at(450), at(450))) == []
    harness.instance.dataflows.seed({S: at(450)})
    harness.maintain()

    assert held(harness) == at(300)


@pytest.mark.parametrize(
    ("sink", "finished"),
    [(SubscribeSink(COLUMNS, up_to=Time(340)), None), (SubscribeSink(COLUMNS), INPUT)],
    ids=["up to a time", "of inputs that have ended"],
)
def test_a_subscribe_that_may_end_does(sink: SubscribeSink, finished: ShardId | None) -> None:
    """Where it was asked up to a time, or where all that it reads is finished."""
    harness = InstanceHarness()
    harness.connect(R1)
    create(harness, sink)
    if finished is not None:
        harness.shards.observe(finished, EMPTY, at(0))

    assert [news.batch.upper for news in batches(harness, R1, EMPTY)] == [EMPTY]


def test_must_hold_nothing_and_end_all_waits_for_a_distrusted_replica() -> None:
    """A gap, an overlap, or last words that nobody asked for: the connection ends, so it is asked anew, a subscribe
    that it alone tells ends, and what is dropped meanwhile is gone with the connection."""
    for lie in (SubscribeBatch(at(5), at(400), b""), SubscribeDropped(at(0))):
        harness = InstanceHarness()
        harness.connect(R1, R2)
        harness.instance.create(Dataflow("s", over_input(SubscribeSink(COLUMNS)), LAG_MS, target=R1), TERM)
        assert harness.hear(R1, SubscribeResponse(S, lie)) == []
        assert refused(harness, R1) is not None
        (ended,) = harness.instance.disconnect(R1)
        assert isinstance(ended, SubscribeAdvanced)
        assert "r1" in str(ended.batch.error)

        harness.instance.drop("s")
        assert harness.hear(R2, SubscribeResponse(S, SubscribeDropped(at(0)))) == [DataflowGone("s")]
        assert held(harness) is None


def test_must_not_believe_that_an_undropped_copy_was_dropped() -> None:
    """Its client would wait for ever where that replica is alone."""
    harness = InstanceHarness()
    harness.connect(R1)
    create(harness, CopyToSink(COLUMNS, "/data/ns/_copies/x", "csv"))
    assert harness.hear(R1, CopyToResponse(S, CopyToDropped())) == []
    assert refused(harness, R1) is not None


@pytest.mark.parametrize("ended", [False, True], ids=["dropped", "ended"])
def test_a_dropped_dataflow_is_gone_once_every_replica_is_done(ended: bool) -> None:
    """By DroppedAt, or because it had come to its end."""
    harness = InstanceHarness()
    harness.connect(R1, R2)
    create(harness, SubscribeSink(COLUMNS))
    if ended:
        harness.shards.observe(INPUT, EMPTY, at(0))
    batch(harness, R1, 0, EMPTY if ended else at(400))
    assert harness.instance.drop("s") == []
    assert harness.sent(R1)[-1] == c.AllowCompaction(S, EMPTY)
    heard = [] if ended else harness.hear(R1, SubscribeResponse(S, SubscribeDropped(at(400))))
    assert heard == []
    assert held(harness) is not None

    assert harness.hear(R2, SubscribeResponse(S, SubscribeDropped(at(0)))) == [DataflowGone("s")]
    assert held(harness) is None
    assert harness.hear(R2, SubscribeResponse(S, SubscribeDropped(at(0)))) == []


def test_a_copy_is_answered_once_and_gone_when_all_have_answered() -> None:
    """The one that was faster, and the other, which was told to stop."""
    harness = InstanceHarness()
    harness.connect(R1, R2)
    create(harness, CopyToSink(COLUMNS, "/data/ns/_copies/x", "csv"))
    assert CopyAnswer(S, CopyToDone(7)) in harness.hear(R1, CopyToResponse(S, CopyToDone(7)))
    harness.instance.drop("s")

    assert harness.hear(R2, CopyToResponse(S, CopyToDropped())) == [DataflowGone("s")]
    assert held(harness) is None


def test_a_copy_response_about_anything_else_changes_nothing() -> None:
    """A replica that lies does not end an index."""
    harness = InstanceHarness()
    harness.connect(R1)
    harness.install()
    assert harness.hear(R1, CopyToResponse(GlobalId("d/i"), CopyToDone(7))) == []
    collection = harness.instance.dataflows.collection(GlobalId("d/i"))
    assert collection is not None
    assert collection.replicas[R1].write is None


def advanced(lower: int, upper: Frontier, updates: bytes = b"", error: str | None = None) -> SubscribeAdvanced:
    return SubscribeAdvanced(S, SubscribeBatch(at(lower), upper, updates, error), (at(lower), 0))


async def take(subscription: Subscription) -> list[tuple[str, str, bytes]]:
    """All that waits."""
    found = []
    while True:
        try:
            async with asyncio.timeout(0.05):
                news = await subscription.next()
        except TimeoutError:
            return found
        found.append((str(news.lower[0]), str(news.batch.upper), news.batch.updates))


def test_batches_without_updates_wait_as_one() -> None:
    """Ticks of an idle view cost a client that sleeps nothing."""
    subscription = Subscription(lambda: None, Backlog())
    for news in (advanced(0, at(5)), advanced(5, at(6)), advanced(6, at(7), b"x"), advanced(7, at(8))):
        subscription.put(news)

    assert asyncio.run(take(subscription)) == [("{0}", "{6}", b""), ("{6}", "{7}", b"x"), ("{7}", "{8}", b"")]


def test_a_client_that_is_too_slow_ends_its_subscribe_and_holds_nothing() -> None:
    """It is told why, and the replicas are told at once."""
    ends: list[int] = []
    subscription = Subscription(lambda: ends.append(1), Backlog(10))
    for lower in (0, 1, 2):
        subscription.put(advanced(lower, at(lower + 1), b"12345"))
    subscription.put(advanced(3, at(4), b"1"))

    with pytest.raises(SubscribeEnded, match="reads too slowly: 15 bytes"):
        asyncio.run(take(subscription))
    assert ends == [1]


def test_when_too_much_waits_for_all_the_one_most_behind_ends() -> None:
    """Whoever keeps up is not made to pay for it, and what has been taken or given up counts no more."""
    backlog = Backlog(10)

    async def play() -> None:
        slow, quick, gone = (Subscription(lambda: None, backlog) for _ in range(3))
        gone.put(advanced(0, at(1), b"123456789"))
        gone.close()
        slow.put(advanced(0, at(1), b"12345678"))
        for lower in range(4):
            quick.put(advanced(lower, at(lower + 1), b"12"))
            assert await take(quick) == [(f"{{{lower}}}", f"{{{lower + 1}}}", b"12")]
        quick.put(advanced(4, at(5), b"123"))

        with pytest.raises(SubscribeEnded, match="reads too slowly: 8 bytes wait for it, and 11"):
            await take(slow)
        assert await take(quick) == [("{4}", "{5}", b"123")]

    asyncio.run(play())


def test_an_error_comes_after_what_was_told_before_it() -> None:
    """The first one counts."""
    subscription = Subscription(lambda: None, Backlog())
    subscription.put(advanced(0, at(1), b"rows"))
    subscription.put(advanced(1, EMPTY, error="division by zero"))
    subscription.fail(SubscribeEnded("another"))

    async def play() -> None:
        assert (await subscription.next()).batch.updates == b"rows"
        with pytest.raises(SubscribeEnded, match="division by zero"):
            await subscription.next()

    asyncio.run(play())


@pytest.mark.parametrize(("over", "until", "ends"), [((INPUT,), None, 1), ((), None, 0), ((INPUT,), Time(301), 0)])
def test_a_subscribe_ends_with_the_table_that_it_reads(
    over: tuple[ShardId, ...], until: Time | None, ends: int
) -> None:
    """A new version of it takes its place, and no change would ever come again. Where its writer is only suspended,
    another comes; and what is read at one time is there."""
    harness = InstanceHarness()
    harness.connect(R1)
    harness.install()
    harness.report(R1, at(400))
    description = replace(over_input(SubscribeSink(COLUMNS)), until=until)
    harness.instance.create(Dataflow("s", description, LAG_MS), TERM)

    dropped = harness.instance.drop("ns/d", over, "Dataflow d was edited")
    reported = [news for news in dropped if isinstance(news, SubscribeAdvanced)]
    assert len(reported) == ends
    assert all("Dataflow d was edited" in str(news.batch.error) for news in reported)


def test_must_not_leave_what_imports_a_dropped_index_for_replicas_to_come() -> None:
    """Its client is told, and a replica that connects later never hears of it."""
    harness = InstanceHarness()
    harness.connect(R1)
    harness.install()
    harness.report(R1, at(400))
    description = replace(transient("s", SubscribeSink(COLUMNS)), as_of=Time(300), source_imports=())
    imported = IndexImport(GlobalId("t"), GlobalId("x"), (), tuple(ColumnType(c.type, c.nullable) for c in COLUMNS))
    description = replace(description, index_imports=(replace(imported, id=INDEX),))
    harness.instance.create(Dataflow("s", description, LAG_MS), TERM)
    batch(harness, R1, 0, at(350))
    (ended,) = harness.instance.drop("ns/d", cause="Dataflow d was deleted")

    assert isinstance(ended, SubscribeAdvanced)
    assert ended.lower == (at(350), 0)
    assert "Dataflow d was deleted" in str(ended.batch.error)
    harness.connect(R2)
    assert not any(isinstance(m, c.CreateDataflow) for m in harness.sent(R2))
