"""The gRPC endpoint: bytes to checked commands, responses to frames, one thread each way per connection.

    reader thread   frames ──► Unpacker ──► LegacyTranslator ──► Stages ──► Gate (Hello) ──► mailbox of the worker
    gRPC's thread   Outbox ──► pack_responses ──► frames

Whatever a client sends, the replica survives: a frame that cannot be understood ends its connection with
INVALID_ARGUMENT, a command out of place or an old epoch with FAILED_PRECONDITION (the served epoch is in the trailing
metadata `tidemark-epoch`), one that does not read with RESOURCE_EXHAUSTED. Of a frame that is refused nothing is done;
the reason is logged once, and not more often than a log can bear.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc

from tidemark_protocol.errors import (
    CertificateUnreadable,
    MalformedFrame,
    MalformedPlan,
    ProtocolError,
    StageViolation,
)
from tidemark_protocol.messages.commands import Hello
from tidemark_protocol.messages.conversation_stages import Stages
from tidemark_protocol.messages.legacy_protocol import LegacyTranslator
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import FilesSource, SourceSpec, SourceTable, TpchSource
from tidemark_protocol.tls.folder import CertificateFolder
from tidemark_protocol.tls.identities import OPERATOR
from tidemark_protocol.tls.server import RequireCaller, server_credentials
from tidemark_protocol.wire.describe import description_to_proto
from tidemark_protocol.wire.frames import (
    GRPC_MAX_BYTES,
    REPLICA_MAX_RECEIVED_BYTES,
    Unpacker,
    pack_responses,
    parse_frame,
)
from tidemark_replica.errors import (
    AddressNotUsable,
    ClientTooSlow,
    EpochRefused,
    SourceNotReadable,
    StashGone,
    StreamBroken,
)
from tidemark_replica.events.client import Client
from tidemark_replica.events.mailbox import ClientGone, CommandsArrived, Mailbox
from tidemark_replica.events.outbox import Outbox
from tidemark_replica.server.epoch_gate import Gate, Replaced
from tidemark_replica.server.refusal_log import Refusals, printable

LOG = logging.getLogger(__name__)
SERVICE = "tidemark.compute.v1.Compute"
THREADS = 16
SIZES = (
    ("grpc.max_send_message_length", GRPC_MAX_BYTES),
    ("grpc.max_receive_message_length", REPLICA_MAX_RECEIVED_BYTES),
)
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)
STATUS: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (MalformedFrame, grpc.StatusCode.INVALID_ARGUMENT),
    (MalformedPlan, grpc.StatusCode.INVALID_ARGUMENT),
    (StageViolation, grpc.StatusCode.FAILED_PRECONDITION),
    (EpochRefused, grpc.StatusCode.FAILED_PRECONDITION),
    (Replaced, grpc.StatusCode.ABORTED),
    (ClientTooSlow, grpc.StatusCode.RESOURCE_EXHAUSTED),
)

Describe = Callable[[pb.DescribeRequest], Description]
Inspect = Callable[[SourceSpec], tuple[SourceTable, ...]]
Piece = Callable[[str, int], bytes]


class Conversation:
    """One stream, from its first frame to its end."""

    def __init__(self, gate: Gate, mailbox: Mailbox, refusals: Refusals) -> None:
        self._gate, self._mailbox, self._refusals = gate, mailbox, refusals
        self._unpacker = Unpacker.of_commands()
        self._translator, self._stages = LegacyTranslator(), Stages()
        self._client: Client | None = None
        self.outbox = Outbox()

    def read(self, requests: Iterator[bytes]) -> None:
        """The reader thread: until the client ends, fails, or breaks the rules."""
        failure: Exception | None = None
        try:
            for data in unbroken(requests):
                if self.outbox.failure is not None:
                    return
                self.take(data)
        except StreamBroken as broken:
            self._refusals.tell(str(broken))
        except (ProtocolError, EpochRefused) as error:
            failure = error
        except Exception as error:
            LOG.exception("a frame could not be taken")
            failure = error
        finally:
            self.outbox.close(failure)
            if self._client is not None:
                self._mailbox.post(ClientGone(self._client))

    def take(self, data: bytes) -> None:
        """One frame: all of it is understood, and allowed in this stage, before anything of it is done."""
        frame = self._unpacker.feed(parse_frame(data))
        commands = [command for received in frame for command in self._translator.translate(received)]
        for command in commands:
            self._stages.accept(command)
        for command in commands:
            if isinstance(command, Hello):
                client = Client(command, self.outbox)
                self._gate.admit(command, client)
                self._client = client
        if self._client is not None and commands:
            self._client.enter()
            self._mailbox.post(CommandsArrived(self._client, tuple(commands)))

    def write(self) -> Iterator[pb.Frame]:
        for batch in self.outbox.batches():
            yield from pack_responses(batch)


def unbroken(requests: Iterator[bytes]) -> Iterator[bytes]:
    """What the client sends; raises StreamBroken, as gRPC raises a bare Exception where a stream breaks off."""
    try:
        yield from requests
    except Exception:
        raise StreamBroken("the stream broke off, or brought a message larger than gRPC takes in") from None


class ComputeService:
    """The four calls of the service."""

    def __init__(self, gate: Gate, mailbox: Mailbox, describe: Describe, inspect: Inspect, piece: Piece) -> None:
        """`piece`: of a stashed answer, from an offset on."""
        self._gate, self._mailbox, self._refusals = gate, mailbox, Refusals()
        self._describe, self._inspect, self._piece = describe, inspect, piece

    def command_response_stream(self, requests: Iterator[bytes], context: Any) -> Iterator[pb.Frame]:
        conversation = Conversation(self._gate, self._mailbox, self._refusals)
        context.add_callback(conversation.outbox.close)
        threading.Thread(target=conversation.read, args=(requests,), name="client-reader", daemon=True).start()
        yield from conversation.write()
        failure = conversation.outbox.failure
        if failure is not None:
            self._refusals.tell(str(failure))
            if isinstance(failure, EpochRefused):
                context.set_trailing_metadata((("tidemark-epoch", str(failure.served)),))
            context.abort(status_of(failure), printable(str(failure)))

    def describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        try:
            return description_to_proto(self._describe(request))
        except TimeoutError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise

    def inspect_source(self, request: pb.InspectSourceRequest, context: Any) -> pb.InspectSourceResponse:
        try:
            tables = self._inspect(decode_source(request.source))
        except SourceNotReadable as error:
            return pb.InspectSourceResponse(error=str(error))
        except MalformedPlan as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        return pb.InspectSourceResponse(tables=[codec.encode(table) for table in tables])

    def fetch_stash(self, request: pb.FetchStashRequest, context: Any) -> pb.FetchStashResponse:
        if request.offset < 0:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"offset {request.offset} is before the beginning")
        try:
            return pb.FetchStashResponse(data=self._piece(request.uuid, request.offset))
        except StashGone as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            raise
        except OSError as error:
            context.abort(grpc.StatusCode.INTERNAL, f"the answer that is kept cannot be read: {error.strerror}")
            raise

    def handler(self) -> Any:
        """The service by hand: the stream takes bytes, so that a frame which does not parse is refused by us."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "CommandResponseStream": grpc.stream_stream_rpc_method_handler(
                    self.command_response_stream, response_serializer=pb.Frame.SerializeToString
                ),
                "Describe": grpc.unary_unary_rpc_method_handler(
                    self.describe, pb.DescribeRequest.FromString, pb.DescribeResponse.SerializeToString
                ),
                "InspectSource": grpc.unary_unary_rpc_method_handler(
                    self.inspect_source, pb.InspectSourceRequest.FromString, pb.InspectSourceResponse.SerializeToString
                ),
                "FetchStash": grpc.unary_unary_rpc_method_handler(
                    self.fetch_stash, pb.FetchStashRequest.FromString, pb.FetchStashResponse.SerializeToString
                ),
            },
        )


def decode_source(data: bytes) -> SourceSpec:
    """Raises MalformedPlan where the bytes are neither kind of source."""
    try:
        return codec.decode(data, FilesSource)
    except MalformedPlan:
        return codec.decode(data, TpchSource)


def status_of(failure: Exception) -> grpc.StatusCode:
    return next((code for kind, code in STATUS if isinstance(failure, kind)), grpc.StatusCode.INTERNAL)


def start_server(service: ComputeService, address: str, tls: CertificateFolder | None) -> Any:
    """Listens at `address` (`unix:///path` or `host:port`); returns the running server. Raises AddressNotUsable."""
    pool = futures.ThreadPoolExecutor(THREADS, thread_name_prefix="grpc")
    only = [] if tls is None else [RequireCaller(OPERATOR)]
    server = grpc.server(pool, interceptors=only, options=[*SIZES, *KEEPALIVE, ("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((service.handler(),))
    try:
        if tls is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, server_credentials(tls))
    except (RuntimeError, CertificateUnreadable) as error:
        raise AddressNotUsable(f"cannot listen at {address}: {error}") from None
    server.start()
    return server
