"""The gRPC endpoint: frames become checked commands, responses become frames. Each connection has one thread per
direction.

    reader thread   frames ──► Unpacker ──► LegacyTranslator ──► Stages ──► EpochGate (Hello) ──► mailbox
    gRPC's thread   Outbox ──► pack_responses ──► frames

No frame harms the replica. A frame that cannot be decoded ends its connection with INVALID_ARGUMENT; a command out of
order or an old epoch ends it with FAILED_PRECONDITION (the trailing metadata `tidemark-epoch` has the served epoch); a
client that does not read gets RESOURCE_EXHAUSTED. No command of a refused frame is carried out. The reason is logged
(`refusal_log.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, cast

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
from tidemark_protocol.plan.ingestion import (
    IngestionDescription,
    PostgresSource,
    PublicationTable,
    SourceSpec,
    SourceTable,
)
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
    ClientStreamBroken,
    ClientTooSlow,
    EpochRefused,
    SourceNotReadable,
    SourceNotReleased,
    StashNotFound,
)
from tidemark_replica.events.client import Client
from tidemark_replica.events.mailbox import ClientDisconnected, CommandsArrived, Mailbox
from tidemark_replica.events.outbox import Outbox
from tidemark_replica.server.epoch_gate import EpochGate, Replaced
from tidemark_replica.server.refusal_log import RefusalLog, printable
from tidemark_replica.server.write_calls import WRITES_MAX, Write, WriteCalls

LOG = logging.getLogger(__name__)
SERVICE = "tidemark.compute.v1.Compute"
THREADS = 16 + WRITES_MAX
"""Each call has a thread; writes wait for their tick in theirs."""
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
Inspect = Callable[[SourceSpec, IngestionDescription | None], tuple[SourceTable, ...]]
FindPublished = Callable[[PostgresSource], tuple[tuple[PublicationTable, ...], int]]
Release = Callable[[IngestionDescription], None]
ListShards = Callable[[pb.ListShardsRequest], pb.ListShardsResponse]
ReadStash = Callable[[str, int], bytes]


class Conversation:
    """One stream, from its first frame to its end."""

    def __init__(self, gate: EpochGate, mailbox: Mailbox, refusals: RefusalLog) -> None:
        self._gate, self._mailbox, self._refusals = gate, mailbox, refusals
        self._unpacker = Unpacker.of_commands()
        self._translator, self._stages = LegacyTranslator(), Stages()
        self._client: Client | None = None
        self.outbox = Outbox()

    def read(self, requests: Iterator[bytes]) -> None:
        """Runs on the reader thread until the client ends the stream, the stream fails, or a frame is refused."""
        failure: Exception | None = None
        try:
            for data in read_frames(requests):
                if self.outbox.failure is not None:
                    return
                self.accept_frame(data)
        except ClientStreamBroken as broken:
            self._refusals.log(str(broken))
        except (ProtocolError, EpochRefused) as error:
            failure = error
        except Exception as error:
            LOG.exception("a frame failed with an unexpected error; its connection ends")
            failure = error
        finally:
            self.outbox.close(failure)
            if self._client is not None:
                self._mailbox.post(ClientDisconnected(self._client))

    def accept_frame(self, data: bytes) -> None:
        """Decodes and checks all commands of one frame before the first of them is passed on."""
        frame = self._unpacker.feed(parse_frame(data))
        commands = [command for received in frame for command in self._translator.translate(received)]
        for command in commands:
            self._stages.accept(command)
        for command in commands:
            if isinstance(command, Hello):
                client = Client(command, self.outbox)
                self._gate.admit(client)
                self._client = client
        if self._client is not None and commands:
            self._client.acquire_frame()
            self._mailbox.post(CommandsArrived(self._client, tuple(commands)))

    def write(self) -> Iterator[pb.Frame]:
        """The response frames, until the outbox is closed."""
        for batch in self.outbox.batches():
            yield from pack_responses(batch)


def read_frames(requests: Iterator[bytes]) -> Iterator[bytes]:
    """The client's frames. Raises ClientStreamBroken: gRPC raises a bare Exception where a stream breaks off."""
    try:
        yield from requests
    except Exception:
        raise ClientStreamBroken("the stream broke off, or a message was larger than gRPC's limit") from None


class ComputeService:
    """The calls of the service."""

    def __init__(
        self,
        gate: EpochGate,
        mailbox: Mailbox,
        describe: Describe,
        inspect: Inspect,
        find_published: FindPublished,
        read_stash: ReadStash,
        write: Write,
        list_shards: ListShards,
        release: Release,
    ) -> None:
        """`read_stash` returns the bytes of a stashed answer from an offset on; `write` receives rows."""
        self._writes = WriteCalls(write)
        self._gate, self._mailbox, self._refusals = gate, mailbox, RefusalLog()
        self._describe, self._inspect, self._read_stash = describe, inspect, read_stash
        self._find_published = find_published
        self._list_shards, self._release = list_shards, release

    def command_response_stream(self, requests: Iterator[bytes], context: Any) -> Iterator[pb.Frame]:
        conversation = Conversation(self._gate, self._mailbox, self._refusals)
        context.add_callback(conversation.outbox.close)
        threading.Thread(target=conversation.read, args=(requests,), name="client-reader", daemon=True).start()
        yield from conversation.write()
        failure = conversation.outbox.failure
        if failure is not None:
            self._refusals.log(str(failure))
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
            pinned = codec.decode(request.ingestion, IngestionDescription) if request.ingestion else None
            source = decode_source(request.source)
            if isinstance(source, PostgresSource) and source.all_tables:
                published, unexamined = self._find_published(source)
                encoded = [codec.encode(table) for table in published]
                return pb.InspectSourceResponse(published=encoded, unexamined=unexamined)
            tables = self._inspect(source, pinned)
        except SourceNotReadable as error:
            return pb.InspectSourceResponse(error=str(error))
        except MalformedPlan as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        return pb.InspectSourceResponse(tables=[codec.encode(table) for table in tables])

    def release_source(self, request: pb.ReleaseSourceRequest, context: Any) -> pb.ReleaseSourceResponse:
        try:
            self._release(codec.decode(request.ingestion, IngestionDescription))
        except SourceNotReleased as error:
            return pb.ReleaseSourceResponse(error=str(error))
        except MalformedPlan as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        return pb.ReleaseSourceResponse()

    def list_shards(self, request: pb.ListShardsRequest, context: Any) -> pb.ListShardsResponse:
        return self._list_shards(request)

    def fetch_stash(self, request: pb.FetchStashRequest, context: Any) -> pb.FetchStashResponse:
        if request.offset < 0:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"offset {request.offset} is before the beginning")
        try:
            return pb.FetchStashResponse(data=self._read_stash(request.uuid, request.offset))
        except StashNotFound as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            raise
        except OSError as error:
            context.abort(grpc.StatusCode.INTERNAL, f"the stashed answer cannot be read: {error.strerror}")
            raise

    def write_rows(self, requests: Iterator[pb.WriteRowsRequest], context: Any) -> pb.WriteRowsResponse:
        return self._writes.serve(requests, context)

    def handler(self) -> Any:
        """The service's handlers. The stream delivers bytes, so that this module refuses frames that do not parse."""
        handlers = {
            "CommandResponseStream": grpc.stream_stream_rpc_method_handler(
                self.command_response_stream, response_serializer=pb.Frame.SerializeToString
            ),
            "Describe": _unary(self.describe, pb.DescribeRequest, pb.DescribeResponse),
            "InspectSource": _unary(self.inspect_source, pb.InspectSourceRequest, pb.InspectSourceResponse),
            "ReleaseSource": _unary(self.release_source, pb.ReleaseSourceRequest, pb.ReleaseSourceResponse),
            "ListShards": _unary(self.list_shards, pb.ListShardsRequest, pb.ListShardsResponse),
            "FetchStash": _unary(self.fetch_stash, pb.FetchStashRequest, pb.FetchStashResponse),
            "WriteRows": grpc.stream_unary_rpc_method_handler(
                self.write_rows, pb.WriteRowsRequest.FromString, pb.WriteRowsResponse.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _unary(call: Callable[[Any, Any], Any], request: Any, response: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(call, request.FromString, response.SerializeToString)


def decode_source(data: bytes) -> SourceSpec:
    """Raises MalformedPlan where the bytes are no kind of source."""
    return cast("SourceSpec", codec.decode(data, cast("type[Any]", SourceSpec)))


def status_of(failure: Exception) -> grpc.StatusCode:
    """The gRPC status of a failure; INTERNAL for unknown types."""
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
