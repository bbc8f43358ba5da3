"""One instance and its replicas: commands, their order, and accepted reports."""

from __future__ import annotations

from dataclasses import replace

from tests.controller.harness import EMPTY, INDEX, INPUT, LAG, NOW, R1, R2, TERM, VIEW, VIEW_SHARD, InstanceHarness, at
from tests.protocol.samples import INGESTION, dataflow
from tidemark_operator.controller.answers.peeks import PeekAnswer
from tidemark_operator.controller.controller_events import DataflowChanged, DataflowGone, ShardAppeared
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.instance import Instance
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import (
    Frontiers,
    IngestionStatus,
    PeekCanceled,
    PeekResponse,
    PeekRows,
    ShardFrontiers,
    Status,
)
from tidemark_protocol.plan.lir import MapFilterProject

COMPLETE = c.InitializationComplete()


def peek(uuid: str, time: int) -> c.Peek:
    return c.Peek(uuid, c.IndexTarget(INDEX), Time(time), MapFilterProject(()), Finishing(), ())


def test_a_new_replica_is_told_the_history_and_that_it_is_complete() -> None:
    """Create, then schedule, then writes, and InitializationComplete once, at the end."""
    harness = InstanceHarness()
    harness.install()

    harness.connect(R1)

    create = c.CreateDataflow(dataflow("d", 300))
    assert harness.sent(R1) == [create, c.Schedule(INDEX), c.Schedule(VIEW), c.AllowWrites(VIEW, TERM), COMPLETE]


def test_later_commands_go_to_every_replica() -> None:
    """A dataflow installed while two replicas are connected reaches both."""
    harness = InstanceHarness()
    harness.connect(R1, R2)
    assert harness.sent(R1) == harness.sent(R2) == [COMPLETE]

    harness.install()

    assert harness.sent(R1) == harness.sent(R2) != []


def test_schedule_waits_until_the_inputs_have_passed_the_as_of() -> None:
    """An input complete up to the as_of, but not at it, holds the dataflow back."""
    harness = InstanceHarness(upper=300)
    harness.connect(R1)
    harness.install(as_of=300)
    assert not any(isinstance(m, c.Schedule) for m in harness.sent(R1))

    harness.hear(R1, ShardFrontiers(INPUT, at(301), at(0)))
    harness.maintain()

    assert harness.sent(R1)[:2] == [c.Schedule(INDEX), c.Schedule(VIEW)]


def test_the_furthest_replica_is_the_global_frontier() -> None:
    """And one that is slower, or starts again, does not take it back."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)

    harness.report(R1, at(450))
    harness.report(R2, at(350))

    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None
    assert index.write == at(450)
    harness.connect(R1)
    harness.report(R1, at(320))
    assert index.write == at(450)


def test_must_reports_that_go_back_change_nothing() -> None:
    """Regressing frontiers are counted and ignored, and unknown ids are ignored."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)
    harness.report(R1, at(450))

    harness.report(R1, at(400))
    harness.report(R1, at(200), INDEX)
    harness.hear(R1, Frontiers(GlobalId("nobody"), at(1)))

    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None
    assert index.write == at(450)
    assert index.replicas[R1].refused_reports == 6


def test_must_responses_of_an_older_connection_are_discarded() -> None:
    """A message of an earlier connection of the same replica does not count any more."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1)
    old = harness.connection(R1)
    harness.connect(R1)

    harness.instance.receive(R1, old, Frontiers(INDEX, at(450)), harness.now)

    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None
    assert index.write is None


def test_compaction_follows_the_read_policy_and_inputs_stay_readable() -> None:
    """An index trails its upper by the lag, a view is at its upper - 1; the input is held for both."""
    harness = InstanceHarness()
    harness.install(as_of=300)
    harness.connect(R1)
    harness.sent(R1)

    harness.report(R1, at(450))
    harness.maintain()

    assert [m for m in harness.sent(R1) if isinstance(m, c.AllowCompaction)] == [
        c.AllowCompaction(INDEX, at(450 - LAG)),
        c.AllowCompaction(VIEW, at(449)),
    ]
    shard = harness.shards.get(INPUT)
    assert shard is not None
    assert shard.allowed_since(harness.now) == at(350)


def test_a_slow_replica_holds_the_inputs_it_still_reads() -> None:
    """Not at the as_of for ever, but at its own input frontier."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1, R2)
    harness.report(R1, at(900))
    harness.report(R2, at(400))
    harness.maintain()
    shard = harness.shards.get(INPUT)
    assert shard is not None
    assert shard.allowed_since(harness.now) == at(399)

    harness.instance.disconnect(R2)
    harness.maintain()

    assert shard.allowed_since(harness.now) == at(800)


def test_a_dropped_dataflow_is_gone_when_every_replica_says_so() -> None:
    """Its holds stay until then; late frontiers of it change nothing."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1, R2)
    harness.report(R1, at(400))
    assert harness.instance.drop("ns/d") == []
    harness.sent(R1)

    assert harness.report(R1, EMPTY) == []
    shard = harness.shards.get(INPUT)
    assert shard is not None
    assert shard.holds
    assert harness.report(R2, EMPTY) == [DataflowGone("ns/d")]
    assert shard.holds == {}
    harness.connect(R1)
    assert harness.sent(R1) == [COMPLETE]


def test_without_a_replica_a_drop_is_done_at_once() -> None:
    """Nobody has anything of it."""
    harness = InstanceHarness()
    harness.install()

    assert harness.instance.drop("ns/d") == [DataflowGone("ns/d")]


def test_a_view_makes_its_shard_known_to_waiting_dataflows() -> None:
    """Its write frontier is its shard's upper; the first one is news."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1)

    notices = harness.report(R1, at(450))

    assert ShardAppeared(VIEW_SHARD) in notices
    assert DataflowChanged("ns/d") in notices
    assert harness.report(R1, at(451)) == []


def test_a_view_is_hydrated_when_it_is_written() -> None:
    """Computed is not enough: a read would find nothing yet."""
    harness = InstanceHarness()
    harness.install(as_of=300)
    harness.connect(R1)
    view = harness.instance.dataflows.collection(VIEW)
    assert view is not None

    harness.hear(R1, Frontiers(VIEW, write=at(300), input=at(450), output=at(450)))
    assert not view.hydrated
    harness.hear(R1, Frontiers(VIEW, write=at(450)))
    assert view.hydrated


def test_errors_are_news_once() -> None:
    """The same status again is none."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1)

    assert harness.hear(R1, Status(INDEX, "erroring", {"errors": "1"})) == [DataflowChanged("ns/d")]
    assert harness.hear(R1, Status(INDEX, "erroring", {"errors": "1"})) == []


def test_progress_of_a_hydration_is_known_until_it_has_ended_and_is_no_news() -> None:
    """The furthest of several replicas counts; statuses are built every second, so nobody need be woken."""
    harness = InstanceHarness()
    harness.install(as_of=300)
    harness.connect(R1, R2)
    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None

    for replica, percent in ((R1, "7"), (R2, "42")):
        reported = Status(INDEX, "hydration", {"state": "hydrating", "percent": percent})
        assert harness.hear(replica, reported) == []
    assert index.hydrating is not None
    assert index.hydrating.percent == 42

    harness.hear(R1, Frontiers(INDEX, write=at(450), input=at(450), output=at(450)))
    assert index.hydrating is None
    assert index.replicas[R2].hydrating is not None


def test_must_the_first_answer_wins_and_the_hold_goes_after_the_cancellation() -> None:
    """A peek holds its index; the answer cancels it where it is still owed; a second answer is ignored."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1, R2)
    harness.report(R1, at(500))
    harness.instance.peek(peek("p", 310))
    harness.maintain()
    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None
    assert index.since == at(310)
    for replica in (R1, R2):
        assert [m for m in harness.sent(replica) if isinstance(m, c.Peek | c.CancelPeek)] == [peek("p", 310)]

    assert harness.hear(R2, PeekResponse("p", PeekRows(b"x", 1))) == [PeekAnswer("p", PeekRows(b"x", 1))]
    harness.maintain()
    compacted = c.AllowCompaction(INDEX, at(400))
    commands, others = harness.sent(R1), harness.sent(R2)
    assert commands.index(c.CancelPeek("p")) < commands.index(compacted)
    assert compacted in others
    assert c.CancelPeek("p") not in others, "it has answered"
    assert harness.hear(R1, PeekResponse("p", PeekRows(b"y", 1))) == []
    assert (harness.sent(R1), harness.sent(R2)) == ([], [])


def test_must_a_cancelled_peek_is_told_to_all_and_its_answer_ignored() -> None:
    """Also when the answer was on its way, and no new replica hears of it."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1)
    harness.instance.peek(peek("p", 310))
    harness.sent(R1)

    harness.instance.cancel_peek("p")

    assert harness.sent(R1) == [c.CancelPeek("p")]
    assert harness.hear(R1, PeekResponse("p", PeekCanceled())) == []
    harness.connect(R2)
    assert not any(isinstance(m, c.Peek) for m in harness.sent(R2))


def test_an_ingestion_runs_on_one_replica_and_moves_with_a_stop() -> None:
    """The old ingester is told to stop; a reconnect tells the new one again, with the time of now."""
    harness = InstanceHarness()
    harness.connect(R1, R2)
    harness.sent(R1), harness.sent(R2)
    harness.instance.ingestions.run(R1, c.RunIngestion(INGESTION, WriterTerm(1), Time(5), 30_000))

    harness.instance.ingestions.run(R2, c.RunIngestion(INGESTION, WriterTerm(2), Time(6), 30_000))

    assert [type(m) for m in harness.sent(R1)] == [c.RunIngestion, c.DropIngestion]
    harness.connect(R2)
    again = c.RunIngestion(INGESTION, WriterTerm(2), Time(harness.now), 30_000)
    assert harness.sent(R2) == [again, COMPLETE]


def test_a_replica_that_holds_its_clock_to_be_ahead_is_told_the_time_again() -> None:
    """It took long to hear of its ingestion. Whoever does not ingest is told nothing."""
    harness = InstanceHarness()
    harness.connect(R1, R2)
    run = c.RunIngestion(INGESTION, WriterTerm(1), Time(5), 30_000)
    harness.instance.ingestions.run(R1, run)
    harness.sent(R1), harness.sent(R2)

    for replica in (R1, R2):
        harness.hear(replica, IngestionStatus(INGESTION.id, "waiting", "ClockSkew: ..."))
    harness.hear(R1, IngestionStatus(INGESTION.id, "waiting", "no files yet"))

    assert harness.sent(R1) == [replace(run, controller_now=Time(harness.now))]
    assert harness.sent(R2) == []


def test_a_shard_is_compacted_by_each_replica_in_turn() -> None:
    """Shards are a namespace's, storage and its credentials an instance's. And one replica's store may not answer."""
    shards, asked = ShardBook(), list[tuple[str, ReplicaId, str]]()
    for location in ("/a/ns/s", "/b/ns/s", "/abc/ns/s"):
        shards.register(ShardId(location), location, LAG)
        shards.observe(ShardId(location), at(1_000), at(0))
    instances = {storage: Instance(shards, storage=storage) for storage in ("/a", "/b/", "/c")}
    for instance in instances.values():
        for number, replica in enumerate((R1, R2)):
            instance.connect(replica, number + 1, NOW)
    for tick in range(3):
        for storage, instance in instances.items():
            instance.maintain(NOW + tick * 10_000)
            for name in (R1, R2):
                link = instance.links[instance.replicas.index(name)]
                asked += [(storage, name, c_.id) for c_ in link.drain() if isinstance(c_, c.AllowShardCompaction)]

    turns = [(R2, R1, R2)[tick] for tick in range(3)]
    assert [(name, id) for storage, name, id in asked if storage == "/a"] == [(name, "/a/ns/s") for name in turns]
    assert [(name, id) for storage, name, id in asked if storage == "/b/"] == [(name, "/b/ns/s") for name in turns]
    assert not [id for storage, _, id in asked if storage == "/c"]
