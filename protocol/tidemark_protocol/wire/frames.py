"""Frames: many messages in one gRPC message, and one large message in many frames.

    pack([m1, m2, ..., BIG, m9])  ──►  Frame(m1, m2, ...)  Frame(fragment)  Frame(fragment, last)  Frame(m9)
                                                           └──────────── BIG ────────────┘

One message per frame costs a hundred times more than many messages, so a frame holds as many as fit FRAME_BYTES. A
message that is larger is split into fragments, which `Unpacker` joins again, up to MAX_MESSAGE_BYTES. Frames keep the
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from tidemark_protocol.errors import MalformedFrame
from tidemark_protocol.messages import commands, responses
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.wire import protobuf

FRAME_VERSION = 1
FRAME_BYTES = 1024 * 1024
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# gRPC's limit on both sides: more than a frame and its envelope need.
GRPC_MAX_BYTES = 4 * FRAME_BYTES
GRPC_OPTIONS = (
    ("grpc.max_send_message_length", GRPC_MAX_BYTES),
    ("grpc.max_receive_message_length", GRPC_MAX_BYTES),
)

# A replica receives somewhat more, so that the replica itself refuses a frame that is too large, and logs why.
REPLICA_MAX_RECEIVED_BYTES = 4 * GRPC_MAX_BYTES

M = TypeVar("M")


def pack_commands(messages: Iterable[commands.Command]) -> Iterator[pb.Frame]:
    """Frames for the messages, in order; raises MalformedFrame for one past MAX_MESSAGE_BYTES."""
    return _pack((protobuf.command_to_proto(m) for m in messages), "commands")


def pack_responses(messages: Iterable[responses.Response]) -> Iterator[pb.Frame]:
    """Frames for the messages, in order; raises MalformedFrame for one past MAX_MESSAGE_BYTES."""
    return _pack((protobuf.response_to_proto(m) for m in messages), "responses")


def _pack(messages: Iterable[Message], field: str) -> Iterator[pb.Frame]:
    pending: list[Message] = []
    size = 0
    for message in messages:
        bytes_ = message.ByteSize()
        if pending and size + bytes_ > FRAME_BYTES:
            yield _frame(field, pending)
            pending, size = [], 0
        if bytes_ > FRAME_BYTES:
            yield from _fragments(message.SerializeToString())
        else:
            pending.append(message)
            size += bytes_
    if pending:
        yield _frame(field, pending)


def _frame(field: str, messages: list[Message]) -> pb.Frame:
    content: dict[str, Any] = {field: messages}
    return pb.Frame(version=FRAME_VERSION, **content)


def _fragments(data: bytes) -> Iterator[pb.Frame]:
    if len(data) > MAX_MESSAGE_BYTES:
        raise MalformedFrame(f"message of {len(data)} bytes is larger than the limit of {MAX_MESSAGE_BYTES}")
    for start in range(0, len(data), FRAME_BYTES):
        piece = data[start : start + FRAME_BYTES]
        fragment = pb.Fragment(data=piece, last=start + FRAME_BYTES >= len(data))
        yield pb.Frame(version=FRAME_VERSION, fragments=[fragment])


def parse_frame(data: bytes) -> pb.Frame:
    """The frame of these bytes; raises MalformedFrame."""
    if len(data) > GRPC_MAX_BYTES:
        raise MalformedFrame(f"frame of {len(data)} bytes is larger than the limit of {GRPC_MAX_BYTES}")
    try:
        return pb.Frame.FromString(data)
    except DecodeError as error:
        raise MalformedFrame(f"not a frame: {error}") from None


class Unpacker(Generic[M]):
    """Turns the frames of one direction of one connection into messages; holds at most one unfinished message."""

    def __init__(self, field: str, proto: Callable[[], Any], decode: Callable[[Any], M]) -> None:
        self._field, self._proto, self._decode = field, proto, decode
        self._unfinished = bytearray()

    @staticmethod
    def of_commands() -> Unpacker[commands.Command]:
        return Unpacker("commands", pb.Command, protobuf.command_from_proto)

    @staticmethod
    def of_responses() -> Unpacker[responses.Response]:
        return Unpacker("responses", pb.Response, protobuf.response_from_proto)

    def feed(self, frame: pb.Frame) -> list[M]:
        """The messages that this frame completes. Raises MalformedFrame or MalformedPlan."""
        if frame.version != FRAME_VERSION:
            raise MalformedFrame(f"frame of version {frame.version}; this side speaks version {FRAME_VERSION}")
        others = {"commands": frame.responses, "responses": frame.commands}[self._field]
        if others:
            raise MalformedFrame(f"a frame on this side holds {self._field} only")
        whole = getattr(frame, self._field)
        if frame.fragments:
            if whole:
                raise MalformedFrame("fragments stand alone in their frame")
            return [m for f in frame.fragments for m in self._fragment(f)]
        if whole and self._unfinished:
            raise MalformedFrame("a message came between the fragments of another")
        return [self._decode(m) for m in whole]

    def _fragment(self, fragment: pb.Fragment) -> list[M]:
        if len(self._unfinished) + len(fragment.data) > MAX_MESSAGE_BYTES:
            raise MalformedFrame(f"a fragmented message is larger than the limit of {MAX_MESSAGE_BYTES}")
        self._unfinished += fragment.data
        if not fragment.last:
            return []
        message = self._proto()
        try:
            message.ParseFromString(bytes(self._unfinished))
        except DecodeError as error:
            raise MalformedFrame(f"fragments do not make a message: {error}") from None
        self._unfinished.clear()
        return [self._decode(message)]
