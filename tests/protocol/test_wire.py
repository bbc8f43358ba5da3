"""Every command and response survives the wire; other messages are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, cast, get_args, get_type_hints

import pytest

from tests.protocol.samples import DATAFLOW, INGESTION, SHARD
from tidemark_protocol.errors import MalformedFrame, MalformedPlan
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages import responses as r
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.ingestion import SourceSpec
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import BIGINT, Column, ColumnType
from tidemark_protocol.wire import frames, protobuf

ID = GlobalId("u1/revenue")
CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PEEK = c.Peek(
    "peek-1",
    c.ShardTarget(ID, SHARD),
    Time(7),
    MapFilterProject((ColumnType(BIGINT),)),
    Finishing(limit=3),
    (Column("a", BIGINT),),
    ((Literal("1", BIGINT),),),
)

COMMANDS: list[c.Command] = [
    c.Hello("nonce", Epoch(3, 4)),
    c.CreateInstance(c.InstanceConfig("default", "file:///data")),
    c.InitializationComplete(),
    c.UpdateConfiguration(1 << 20, {"log_level": "debug"}, 1 << 10),
    c.UpdateConfiguration(),
    c.CreateDataflow(DATAFLOW),
    c.Schedule(ID),
    c.AllowWrites(ID, WriterTerm(2)),
    c.AllowCompaction(ID, Frontier.at(9)),
    c.AllowCompaction(ID, Frontier.empty()),
    PEEK,
    dataclasses.replace(PEEK, skip_errors=True, trace_context=CONTEXT),
    c.CancelPeek("peek-1"),
    c.RunIngestion(INGESTION, WriterTerm(1), Time(5), 30_000),
    c.RunIngestion(INGESTION, WriterTerm(1), Time(5), 1, (c.FileRequest(7, c.RELEASE, "t", "1.csv"),)),
    c.DropIngestion(ID),
    c.AllowShardCompaction(ShardId("s1"), "/shards/s1", Frontier.at(0)),
    c.DeleteShard(ShardId("s1"), "/shards/s1"),
]
RESPONSES: list[r.Response] = [
    r.Frontiers(ID, Frontier.at(0), None, Frontier.empty()),
    r.PeekResponse("peek-1", r.PeekRows(b"ipc", 3)),
    r.PeekResponse("peek-1", r.PeekStashed(3, 1 << 40)),
    r.PeekResponse("peek-1", r.PeekError("division by zero", is_deterministic=True)),
    r.PeekResponse("peek-1", r.PeekError("disk full")),
    r.PeekResponse("peek-1", r.PeekCanceled()),
    r.PeekResponse("peek-1", r.PeekRows(b"ipc", 3), CONTEXT),
    r.SubscribeResponse(ID, r.SubscribeBatch(Frontier.at(0), Frontier.at(5), b"ipc")),
    r.SubscribeResponse(ID, r.SubscribeBatch(Frontier.at(5), Frontier.at(5), b"ipc", None, 7, 2**64 - 1)),
    r.SubscribeResponse(ID, r.SubscribeBatch(Frontier.at(5), Frontier.empty(), error="poisoned")),
    r.SubscribeResponse(ID, r.SubscribeBatch(Frontier.at(0), Frontier.empty(), error="changed", is_void=True)),
    r.SubscribeResponse(ID, r.SubscribeDropped(Frontier.at(5))),
    r.CopyToResponse(ID, r.CopyToDone(4)),
    r.CopyToResponse(ID, r.CopyToFailed("disk full")),
    r.CopyToResponse(ID, r.CopyToDropped()),
    r.Status(ID, "hydration", {"percent": "40"}),
    r.Failure(ID, r.FailureKind.STEP, "no room", r.OUT_OF_MEMORY, 3),
    r.Failure(ID, r.FailureKind.REFUSED, "no such function", stopped=True),
    r.Failure(ID, r.FailureKind.SINK, "no room", repeated=True),
    r.ShardFrontiers(ShardId("s1"), Frontier.at(8), Frontier.at(2)),
    r.IngestionStatus(ID, "running", "", {"files": 3}),
    r.IngestionStatus(
        ID,
        "running",
        files=(
            r.SourceFile("t", "1.csv", 7, "refused", "SCHEMA_MISMATCH", 1, 0, Time(5)),
            r.SourceFile("t", "2.csv", 7, "read"),
        ),
        outcomes=(r.FileOutcome(7), r.FileOutcome(8, "FILE_CHANGED: it is gone")),
        activity="reads 1 file(s) of table t, 254 MB",
        tables=(
            r.TableReport("t"),
            r.TableReport("u", 5, 9, 0, "versions", 0, 2, "VersionGone: 7", 3, Time(0), True),
        ),
    ),
    r.ShardDeleted(ShardId("s1")),
    r.ShardDeleted(ShardId("s1"), "permission denied"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda m: type(m).__name__)
def test_a_command_survives_the_wire(command: c.Command) -> None:
    """Decoding gives the value that was encoded."""
    data = protobuf.command_to_proto(command).SerializeToString()

    assert protobuf.command_from_proto(pb.Command.FromString(data)) == command


@pytest.mark.parametrize("response", RESPONSES, ids=lambda m: type(m).__name__)
def test_a_response_survives_the_wire(response: r.Response) -> None:
    """Decoding gives the value that was encoded."""
    data = protobuf.response_to_proto(response).SerializeToString()

    assert protobuf.response_from_proto(pb.Response.FromString(data)) == response


def test_every_command_and_response_has_a_sample() -> None:
    """Every message type has a sample above."""
    assert {type(m) for m in COMMANDS} == set(c.ComputeCommand.__args__) | set(c.StorageCommand.__args__)
    assert {type(m) for m in RESPONSES} == set(r.ComputeResponse.__args__) | set(r.StorageResponse.__args__)


def messages_of(cls: Any, message: Any) -> Iterator[tuple[Any, Any]]:
    """The dataclasses that travel field by field, with the descriptors of their messages."""
    if cls in protobuf._OWN_FORMS:
        return
    yield cls, message
    hints = get_type_hints(cls)
    for field in message.fields:
        inside = [hint for hint in (hints.get(field.name), *get_args(hints.get(field.name))) if is_dataclass(hint)]
        if field.message_type is not None and inside:
            yield from messages_of(inside[0], field.message_type)


def test_no_field_of_a_dataclass_is_lost() -> None:
    """A field that the message has under no name, or under another one, would be left out without an error."""
    roots = [*protobuf._COMMANDS.items(), *protobuf._RESPONSES.items()]
    pairs = [pair for cls, field in roots for pair in messages_of(cls, field.message_type)]
    pairs += messages_of(r.Description, pb.DescribeResponse.DESCRIPTOR)
    lost = {(cls, f.name) for cls, message in pairs for f in fields(cls) if f.name not in message.fields_by_name}
    assert lost == {(r.Description, "plan_features"), (Column, "nullable")}
    assert {r.SourceFile, r.TableReport, r.DescribedShard, c.FileRequest, Epoch} <= {cls for cls, _ in pairs}


def test_many_messages_share_a_frame_and_keep_their_order() -> None:
    """A thousand small commands fit one frame."""
    sent = [c.Schedule(GlobalId(f"u{i}")) for i in range(1000)]
    packed = list(frames.pack_commands(sent))
    unpacker = frames.Unpacker.of_commands()

    assert len(packed) == 1
    assert [m for f in packed for m in unpacker.feed(f)] == sent


def test_a_large_message_travels_in_fragments_between_its_neighbours() -> None:
    """No frame is larger than the limit, and order is kept."""
    large = r.PeekResponse("p", r.PeekRows(bytes(range(256)) * 4 * 4096 * 3, 1))
    sent: list[r.Response] = [RESPONSES[0], large, RESPONSES[-1]]
    packed = list(frames.pack_responses(sent))
    unpacker = frames.Unpacker.of_responses()

    assert max(f.ByteSize() for f in packed) < frames.GRPC_MAX_BYTES
    assert len(packed) > 3
    assert [m for f in packed for m in unpacker.feed(f)] == sent


BAD_FRAMES = {
    "another version": pb.Frame(version=99),
    "no kind": pb.Frame(version=1, commands=[pb.Command()]),
    "a response on the command side": pb.Frame(version=1, responses=[pb.Response()]),
    "an empty id": pb.Frame(version=1, commands=[pb.Command(schedule=pb.Schedule(id=""))]),
    "a negative frontier": pb.Frame(
        version=1, commands=[pb.Command(allow_compaction=pb.AllowCompaction(id="a", frontier=-1))]
    ),
    "a fragment that is no message": pb.Frame(version=1, fragments=[pb.Fragment(data=b"\xff\xff", last=True)]),
}


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_is_refused(frame: pb.Frame) -> None:
    """The error is raised before anything acts on the frame."""
    with pytest.raises(MalformedFrame):
        frames.Unpacker.of_commands().feed(frame)


def test_a_dataflow_of_unknown_nodes_is_refused() -> None:
    """Plans from the wire are untrusted."""
    data = protobuf.command_to_proto(c.CreateDataflow(DATAFLOW)).create_dataflow.description.replace(
        b'"Get"', b'"Eval"'
    )
    frame = pb.Command(create_dataflow=pb.CreateDataflow(description=data))

    with pytest.raises(MalformedPlan, match="Eval"):
        protobuf.command_from_proto(frame)


def test_the_digest_ignores_names_and_times_but_not_the_plan() -> None:
    """The digest depends on what is computed alone."""
    renamed = dataclasses.replace(DATAFLOW, name="other", as_of=Time(99))
    other = dataclasses.replace(DATAFLOW, objects=())

    assert renamed.plan_digest == DATAFLOW.plan_digest
    assert other.plan_digest != DATAFLOW.plan_digest


def test_the_refusal_of_a_source_names_the_field_that_is_wrong() -> None:
    with pytest.raises(MalformedPlan, match=r"\.tables: did not expect int"):
        codec.decode(b'{"@":"FilesSource","tables":3}', cast("type[Any]", SourceSpec))
