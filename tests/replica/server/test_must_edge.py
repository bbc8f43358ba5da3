"""The replica's edge without a socket: accepted frames, refusals, and log lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import grpc
import pytest

from tests.fuzz.edges import ReplicaEdge
from tests.replica.plans import copies, shard
from tidemark_protocol.errors import MalformedFrame
from tidemark_protocol.ids import Epoch, GlobalId, Time, WriterTerm
from tidemark_protocol.messages.commands import (
    AllowAllWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Hello,
    InitializationComplete,
    InstanceConfig,
    Peek,
    Schedule,
    ShardTarget,
    UpdateConfiguration,
)
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.replica_settings import LogLevel
from tidemark_protocol.messages.responses import PeekCanceled, PeekResponse
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_protocol.wire import frames
from tidemark_protocol.wire.frames import MAX_MESSAGE_BYTES, pack_commands, parse_frame
from tidemark_replica.command_loop import runtime_settings as settings_at_work
from tidemark_replica.events.mailbox import Mailbox
from tidemark_replica.server.epoch_gate import EpochGate
from tidemark_replica.server.refusal_log import LINES, WINDOW_SECONDS, RefusalLog
from tidemark_replica.server.server import Conversation

CREATE = CreateInstance(InstanceConfig("default", "/data"))
COMPLETE = InitializationComplete()
VIEW = copies("a", 10, source=shard("t"), view=shard("v"))
REFUSED, OUT_OF_PLACE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION


def frame(*commands: Command) -> bytes:
    (packed,) = pack_commands(commands)
    return packed.SerializeToString()


def greeted(connection: int = 1) -> ReplicaEdge:
    edge = ReplicaEdge()
    assert edge.take(frame(Hello(f"nonce {connection}", Epoch(1, connection)), CREATE)) is None
    return edge


@pytest.mark.parametrize(
    ("refused", "status"),
    [
        ([Hello("newer", Epoch(1, 2)), COMPLETE], OUT_OF_PLACE),
        ([Hello("newer", Epoch(1, 2)), CREATE, CreateDataflow(copies("d", -1, index="i"))], REFUSED),
        ([Hello("newer", Epoch(1, 2)), CREATE, Hello("again", Epoch(1, 3))], OUT_OF_PLACE),
        ([CreateTimely(Epoch(1, 2)), AllowAllWrites(), Hello("again", Epoch(1, 3))], OUT_OF_PLACE),
        ([Hello("older", Epoch(0, 9)), CREATE], OUT_OF_PLACE),
    ],
    ids=["out of order", "no time", "greeted twice", "two generations", "older epoch"],
)
def test_must_do_nothing_of_a_frame_that_is_refused(refused: list[Command], status: grpc.StatusCode) -> None:
    """Not even what comes before the mistake: the client that is served is not replaced."""
    edge = greeted()
    served = edge._conversation
    edge.connect()

    assert edge.take(frame(*refused)) == status
    assert edge.gate.epoch == Epoch(1, 1)
    assert served.outbox.failure is None


@pytest.mark.parametrize(
    "command",
    [
        CreateDataflow(copies("d", 10, source=shard("t"))),
        CreateDataflow(copies("d", 10, source=shard("t"), index="d-view", view=shard("v"))),
        CreateDataflow(copies("d", 2**63 - 1, source=shard("t"), index="i")),
        CreateDataflow(copies("d", 10, source=shard("t"), view=shard("v"), refresh=RefreshSchedule())),
        UpdateConfiguration(max_result_bytes=-1),
        UpdateConfiguration(stash_above_bytes=-1),
        Hello("n", Epoch(-1, 0)),
        Peek("", ShardTarget(GlobalId("t"), shard("t")), Time(0), MapFilterProject(()), Finishing(), ()),
    ],
    ids=[
        "exports nothing",
        "exports an id twice",
        "no time",
        "refreshed never",
        "less than nothing",
        "less than no stash",
        "no epoch",
        "no uuid",
    ],
)
def test_must_refuse_meaningless_commands(command: Command) -> None:
    """Before anything acts on it."""
    assert greeted().take(frame(command)) == REFUSED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"colour": "blue"}, "there is no setting 'colour'; choose one of log_level"),
        ({"log_level": "DEBUG"}, "setting log_level is 'DEBUG'; choose one of debug, info, warning, error"),
    ],
    ids=["no such setting", "no such value"],
)
def test_must_leave_settings_as_they_are_that_a_newer_operator_knows(
    settings: dict[str, str], message: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes on, the rest of the command is done, and the log says it once, whoever says it how often."""
    levels: list[LogLevel] = []
    monkeypatch.setattr(settings_at_work, "set_level", levels.append)
    edge = ReplicaEdge()
    for connection in (1, 2):
        greeting = [Hello(f"nonce {connection}", Epoch(1, connection)), CREATE]
        assert edge.take(frame(*greeting, UpdateConfiguration(settings=settings), COMPLETE)) is None
        assert edge.take(frame(UpdateConfiguration(7, settings))) is None
        assert edge.take(frame(UpdateConfiguration(settings={**settings, "log_level": "error"}))) is None
        edge.connect()

    assert levels == [LogLevel.ERROR] * 2
    assert [r.getMessage() for r in caplog.records if message in r.getMessage()] == [
        f"a setting is ignored (the operator may be newer than this replica): {message}"
    ]


@pytest.mark.parametrize("installed", [False, True])
def test_must_refuse_what_is_created_twice_in_the_initialization(installed: bool) -> None:
    """Whether it is there already or not; what is there stays, and is there for the next client."""
    edge = greeted()
    assert edge.take(frame(*([CreateDataflow(VIEW)] if installed else []), COMPLETE)) is None
    edge.connect()
    again = [Hello("nonce 2", Epoch(1, 2)), CREATE, CreateDataflow(VIEW), CreateDataflow(VIEW), COMPLETE]
    assert edge.take(frame(*again)) == OUT_OF_PLACE
    assert len(list(edge._dataflows)) == installed

    edge.connect()
    assert edge.take(frame(Hello("nonce 3", Epoch(1, 3)), CREATE, CreateDataflow(VIEW), COMPLETE)) is None
    assert len(list(edge._dataflows)) == 1


@pytest.mark.parametrize(
    "plan",
    [b'{"@":"InstanceConfig","instance":"\\ud800","storage_location":""}', b"[" * 100_000, b"\xff", b"{}"],
    ids=["half a character", "without end", "no text", "no plan"],
)
def test_must_refuse_plans_that_are_none(plan: bytes) -> None:
    """The plan could be written as JSON and not be sent back, or not be read at all."""
    edge = ReplicaEdge()
    assert edge.take(frame(Hello("n", Epoch(1, 1)))) is None
    bad = pb.Frame(version=1, commands=[pb.Command(create_instance=pb.CreateInstance(config=plan))])

    assert edge.take(bad.SerializeToString()) == REFUSED


def test_must_refuse_what_is_too_large() -> None:
    """A frame past gRPC's limit, a message past its own, in however many fragments; what is held stays bounded."""
    with pytest.raises(MalformedFrame, match="larger than the limit"):
        parse_frame(b"\0" * (frames.GRPC_MAX_BYTES + 1))

    edge, piece = greeted(), b"\0" * frames.FRAME_BYTES
    more = pb.Frame(version=1, fragments=[pb.Fragment(data=piece)]).SerializeToString()
    for _ in range(MAX_MESSAGE_BYTES // len(piece)):
        assert edge.take(more) is None
    assert edge.take(more) == REFUSED


def test_must_keep_the_order_of_commands() -> None:
    """In one frame, over frames, and around a message in fragments: a cancellation comes after its peek."""
    edge = greeted()
    edge.take(frame(COMPLETE))
    columns = MapFilterProject(())
    asked: list[Command] = []
    for number in range(300):
        uuid = f"p{number}" if number != 150 else "p" * 1000
        target = ShardTarget(GlobalId("t"), shard("t", "/nowhere" * (1 if number != 150 else 200_000)))
        asked += [Peek(uuid, target, Time(5_000), columns, Finishing(), ()), CancelPeek(uuid)]
    reported = []
    for packed in pack_commands(asked):
        assert edge.take(packed.SerializeToString()) is None
        reported += edge.said

    assert [r.uuid for r in reported if isinstance(r, PeekResponse)] == [
        c.uuid for c in asked if isinstance(c, CancelPeek)
    ]
    assert all(isinstance(r.result, PeekCanceled) for r in reported if isinstance(r, PeekResponse))


def test_must_serve_a_client_of_the_older_generation() -> None:
    """One after a client of ours, over the same dataflow; its views may write when it allows all to."""
    edge = greeted()
    edge.take(frame(CreateDataflow(VIEW), Schedule(GlobalId("a-view")), COMPLETE))
    (export,) = [e for d in edge._dataflows for e in d.exports.values()]
    assert export.term is None

    edge.connect()
    first = [CreateTimely(Epoch(3, 1)), CREATE, CreateDataflow(VIEW), Schedule(GlobalId("a-view")), COMPLETE]
    assert edge.take(frame(*first)) is None
    assert (edge.gate.epoch, export.term) == (Epoch(3, 1), None)
    assert edge.take(frame(AllowAllWrites())) is None

    assert [(e.id, e.term) for d in edge._dataflows for e in d.exports.values()] == [("a-view", WriterTerm(3))]
    assert export.term == 3, "the same dataflow went on"


@pytest.mark.parametrize("commands", [[CreateTimely(Epoch(1, 2)), AllowAllWrites()], [AllowAllWrites()]])
def test_must_not_take_the_older_permission_before_there_is_an_instance(commands: list[Command]) -> None:
    """Though it would mean nothing, for there is nothing yet that could write."""
    edge = ReplicaEdge()
    assert edge.take(frame(*commands, CREATE)) == OUT_OF_PLACE


def test_must_go_through_the_four_older_stages_in_order_and_never_back() -> None:
    """Creation, initialization, read-only, read-write: each is told by what it takes, and by who may write in it."""
    edge = ReplicaEdge()
    assert edge.take(frame(CreateTimely(Epoch(1, 2)))) is None
    assert edge.take(frame(CREATE, CreateDataflow(VIEW), Schedule(GlobalId("a-view")))) is None
    assert (edge.said, written(edge)) == ([], {})

    assert edge.take(frame(COMPLETE)) is None
    assert (edge.said != [], written(edge)) == (True, {"a-view": None})
    assert edge.take(frame(AllowAllWrites())) is None
    assert written(edge) == {"a-view": 1}

    later = copies("b", 10, source=shard("t"), view=shard("w"))
    assert edge.take(frame(AllowAllWrites(), CreateDataflow(later))) is None
    assert written(edge) == {"a-view": 1, "b-view": 1}
    assert edge.take(frame(COMPLETE)) == OUT_OF_PLACE


def written(edge: ReplicaEdge) -> dict[str, int | None]:
    """The views that there are, and the term under which each may be written."""
    return {e.id: e.term for d in edge._dataflows for e in d.exports.values()}


def test_must_log_the_reason_once(caplog: pytest.LogCaptureFixture) -> None:
    """A stream that breaks off too; on one line, whatever the client put into it."""
    refusals = RefusalLog()
    for line in ("an id of\n0 characters", "x" * 10_000):
        refusals.log(line)
    broken = Conversation(EpochGate(), Mailbox(), refusals)

    def requests() -> Iterator[bytes]:
        yield frame(Hello("n", Epoch(1, 1)))
        raise RuntimeError("the stream is gone")

    broken.read(requests())

    reported = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(reported) == 3
    assert reported[0] == "a client's connection ends: an id of?0 characters"
    assert len(reported[1]) < 600
    assert "broke off" in reported[2]


def test_must_not_let_clients_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The log takes so many lines a minute; the others are counted, and told with the next one."""
    now = [0.0]
    refusals = RefusalLog(lambda: now[0])
    for _ in range(10_000):
        refusals.log("no")
    assert len(caplog.records) == LINES
    now[0] += WINDOW_SECONDS
    refusals.log("no")

    assert len(caplog.records) == LINES + 1
    assert caplog.records[-1].getMessage().endswith(f"(and {10_000 - LINES} more since then)")
