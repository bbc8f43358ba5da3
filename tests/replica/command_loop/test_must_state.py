"""Responses that a replica must send and must not send: its own state machine, with shards that are numbers."""

from __future__ import annotations

from dataclasses import replace

from tests.model.replica import SimReplica
from tests.model.shards import Shards, SimShard
from tests.replica.command_loop.test_must_dataflows import Scene
from tests.replica.plans import copies, shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    IndexTarget,
    InitializationComplete,
    Peek,
    Schedule,
)
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import (
    Failure,
    FailureKind,
    Frontiers,
    PeekError,
    PeekResponse,
    PeekRows,
    Response,
    ShardFrontiers,
    Status,
)
from tidemark_protocol.plan.map_filter_project import MapFilterProject

T, V = shard("t"), shard("v")
BOTH = copies("a", 10, source=T, index="i", view=V)
INDEX, VIEW, NOBODY = GlobalId("i"), GlobalId("a-view"), GlobalId("nobody")
EMPTY, at = Frontier.empty(), Frontier.at
COMPLETE = InitializationComplete()
SET_UP: list[Command] = [
    CreateDataflow(BOTH),
    Schedule(INDEX),
    Schedule(VIEW),
    AllowWrites(VIEW, WriterTerm(1)),
]


def peek(uuid: str, time: int, id: GlobalId = INDEX) -> Peek:
    return Peek(uuid, IndexTarget(id), Time(time), MapFilterProject(()), Finishing(), ())


class Talk:
    """A replica whose input is complete below `upper`, and one client after the other."""

    def __init__(self, upper: int = 30) -> None:
        self.shards: Shards = {ShardId("t"): SimShard(upper=upper), ShardId("v"): SimShard()}
        self.replica = SimReplica(self.shards)
        self.replica.greet()

    def say(self, *commands: Command) -> list[Response]:
        """And what comes back, without what is said of shards."""
        for command in commands:
            self.replica.take(command)
        return self.hear()

    def hear(self) -> list[Response]:
        for _ in range(3):
            self.replica.work(1_000)
        return [r for r in self.replica.drain() if not isinstance(r, ShardFrontiers)]


def test_must_report_indexes_and_sinks() -> None:
    """All three kinds of each, from the as_of on."""
    responses = Talk(upper=30).say(*SET_UP, COMPLETE)

    last = {id: [r for r in responses if isinstance(r, Frontiers) and r.id == id] for id in (INDEX, VIEW)}
    for reports in last.values():
        for kind in ("write", "input", "output"):
            reported = [f for r in reports if (f := getattr(r, kind)) is not None]
            assert reported == sorted(reported)
            assert reported[0] >= at(10)
            assert reported[-1] == at(30)


def test_must_answer_what_was_asked_in_the_initialization() -> None:
    """Nothing is said before InitializationComplete; afterwards all that is owed, once."""
    talk = Talk()
    assert talk.say(*SET_UP, peek("p", 20), peek("lost", 20, NOBODY), peek("given up", 5_000)) == []

    responses = talk.say(COMPLETE, CancelPeek("given up"))

    answers = {r.uuid: r.result for r in responses if isinstance(r, PeekResponse)}
    assert len(answers) == sum(isinstance(r, PeekResponse) for r in responses) == 3
    assert answers["p"] == PeekRows(b"20", 1)
    assert isinstance(answers["lost"], PeekError)
    assert {r.id for r in responses if isinstance(r, Frontiers)} == {INDEX, VIEW}


def test_must_say_nothing_of_what_was_not_created() -> None:
    """Whatever is commanded about it: no frontiers, no answers, no status."""
    talk = Talk()
    unknown = [
        Schedule(NOBODY),
        AllowWrites(NOBODY, WriterTerm(1)),
        AllowCompaction(NOBODY, at(7)),
        AllowCompaction(NOBODY, EMPTY),
        CancelPeek("nobody's"),
    ]

    assert talk.say(*unknown, COMPLETE) == []
    assert talk.say(*unknown) == []


def test_must_ignore_commands_about_what_is_gone() -> None:
    """They were on their way when it went; its end was told once."""
    talk = Talk()
    talk.say(*SET_UP, peek("p", 20), COMPLETE)
    ends = talk.say(AllowCompaction(INDEX, EMPTY), AllowCompaction(VIEW, EMPTY))
    assert ends == [Frontiers(id, EMPTY, EMPTY, EMPTY) for id in (INDEX, VIEW)]

    late = [*SET_UP[1:], AllowCompaction(INDEX, at(20)), AllowCompaction(INDEX, EMPTY), CancelPeek("p")]
    assert talk.say(*late) == []


def test_must_never_return_to_read_only() -> None:
    """A sink that may write writes on for a client that allows nothing, under the newest term it ever had."""
    talk = Talk(upper=30)
    talk.say(*SET_UP, AllowWrites(VIEW, WriterTerm(4)), AllowWrites(VIEW, WriterTerm(2)), COMPLETE)
    talk.replica.greet()
    talk.shards[ShardId("t")].upper = 60
    talk.say(CreateDataflow(replace(BOTH, as_of=Time(20))), COMPLETE)

    assert (talk.shards[ShardId("v")].upper, talk.shards[ShardId("v")].term) == (60, 4)


def test_must_write_nothing_before_it_is_allowed() -> None:
    """All else goes on: the output is there to be read."""
    talk = Talk(upper=30)
    responses = talk.say(*SET_UP[:3], peek("p", 20), COMPLETE)
    assert talk.shards[ShardId("v")].upper == 0
    assert PeekResponse("p", PeekRows(b"20", 1)) in responses

    talk.shards[ShardId("t")].upper = 40
    talk.say(SET_UP[3])
    assert talk.shards[ShardId("v")].upper == 40


def test_must_tell_no_status_of_what_is_not_there_or_has_ended() -> None:
    """The ids were not created, were dropped, or their end was reported."""
    scene = Scene()
    scene.dataflows.create(BOTH)
    scene.dataflows.maintain()
    scene.hear()
    statuses = [Failure(id, FailureKind.STEP, "no") for id in (INDEX, VIEW, NOBODY)]
    for status in statuses:
        scene.dataflows.send(status)
    assert scene.hear() == statuses[:2]

    scene.dataflows.compact(INDEX, EMPTY)
    scene.hear()
    for status in statuses:
        scene.dataflows.send(status)
    assert scene.hear() == statuses[1:2]

    scene.drivers[0].dataflow.progress(EMPTY)
    scene.dataflows.maintain()
    assert scene.hear() == [Frontiers(VIEW, EMPTY, EMPTY, EMPTY)]
    scene.dataflows.send(statuses[1])
    assert scene.hear() == []


def test_must_tell_no_status_after_the_end_to_a_client_that_reads_slowly() -> None:
    """Waiting statuses merge: the end comes after the status that was told before it."""
    talk = Talk(upper=30)
    talk.say(*SET_UP, COMPLETE)
    talk.shards[ShardId("t")].upper = 40
    talk.replica.work(1_000)
    status = Status(INDEX, "erroring", {"errors": "1"})
    talk.replica.dataflows.send(status)
    talk.replica.take(AllowCompaction(INDEX, EMPTY))

    responses = [r for r in talk.hear() if getattr(r, "id", None) == INDEX]
    assert responses == [status, Frontiers(INDEX, EMPTY, EMPTY, EMPTY)]


def test_must_tell_errors_before_the_end() -> None:
    """The export is in error and finished: its end is reported after its errors, for afterwards none may be."""
    scene = Scene()
    scene.dataflows.create(BOTH)
    dataflow = scene.drivers[0].dataflow
    dataflow.progress(EMPTY)
    dataflow.pending_error_reads = 1
    scene.dataflows.maintain()
    assert scene.hear() == []

    scene.dataflows.send(Status(INDEX, "erroring", {"errors": "1"}))
    dataflow.pending_error_reads = 0
    scene.dataflows.maintain()
    erroring, *ends = scene.hear()
    assert isinstance(erroring, Status)
    assert ends == [Frontiers(id, EMPTY, EMPTY, EMPTY) for id in (INDEX, VIEW)]
