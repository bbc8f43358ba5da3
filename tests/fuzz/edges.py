"""Both edges of the protocol: the real code from bytes to state, without sockets, disks or Spark.

    bytes ──► Conversation, EpochGate, CommandLoop, ComputeState   a replica; its drivers check plans only
    bytes ──► Unpacker, Instance                            a controller
    bytes ──► FetchStash                                    a replica that keeps an answer

Each takes one frame after the other and says what it was refused with. The rule that every frame must keep is asserted
here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.controller.harness import INDEX, R1, VIEW, InstanceHarness, at
from tests.model.fake_pool import Pool
from tests.model.shards import Shards, SimShard, Watch
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.errors import PlanNotAllowed, ProtocolError
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.commands import Command, Peek
from tidemark_protocol.messages.responses import PeekRows, Response
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.wire.frames import Unpacker, pack_responses, parse_frame
from tidemark_replica.command_loop.compute_state import ComputeState
from tidemark_replica.command_loop.executors import ExecutorWatch
from tidemark_replica.command_loop.loop import CommandLoop
from tidemark_replica.dataflow.export_state import ExportState
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.dataflow.installed_dataflows import InstalledDataflows
from tidemark_replica.errors import ConfigChanged, DataflowRefused, EpochRefused
from tidemark_replica.events.client import Responder
from tidemark_replica.events.mailbox import Mailbox
from tidemark_replica.peek.peek_queue import PeekQueue
from tidemark_replica.peek.peek_reader import AnswerLimits
from tidemark_replica.peek.peek_targets import InstalledPeekTargets
from tidemark_replica.peek.result_stash import PIECE_BYTES, ResultSpool, ResultStash, StashedResult
from tidemark_replica.server.epoch_gate import EpochGate
from tidemark_replica.server.refusal_log import RefusalLog
from tidemark_replica.server.server import ComputeService, Conversation, status_of
from tidemark_replica.shards.store_watch import StoreWatch
from tidemark_replica.telemetry.metrics import Metrics
from tidemark_replica.telemetry.status_repeater import StatusRepeater

REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)


class EveryShard(Shards):
    """Shards under any name."""

    def __missing__(self, id: ShardId) -> SimShard:
        return self.setdefault(id, SimShard(upper=50))


@dataclass
class Idle:
    """A driver of plans that are allowed: hydrated as soon as it may begin."""

    dataflow: InstalledDataflow

    def __post_init__(self) -> None:
        try:
            check_dataflow(self.dataflow.description)
        except PlanNotAllowed as error:
            raise DataflowRefused(str(error)) from None

    def advance(self) -> None:
        if not self.dataflow.hydrated:
            self.dataflow.progress(Frontier.empty())

    def write_frontier(self, id: GlobalId) -> Frontier:
        return self.dataflow.processed

    def allow_writes(self, export: ExportState) -> None: ...

    def allow_compaction(self, id: GlobalId, since: Frontier) -> None: ...

    @property
    def is_stepping(self) -> bool:
        return False

    @property
    def is_superseded(self) -> bool:
        return False

    def drop(self, id: GlobalId) -> Response | None:
        return None

    def retry_now(self) -> None: ...

    def report_again(self) -> None: ...

    def stop(self) -> None: ...


@dataclass
class Stored:
    """Records storage commands."""

    taken: list[Command] = field(default_factory=list)

    def apply(self, command: Command) -> None:
        self.taken.append(command)

    def keep_only(self, wanted: list[GlobalId]) -> None: ...

    def maintain(self) -> None: ...


class ReplicaEdge:
    """A replica, and one connection after the other."""

    def __init__(self) -> None:
        self.gate, self.mailbox, self._refusals = EpochGate(), Mailbox(), RefusalLog()
        respond, metrics, pool = Responder(Metrics()), Metrics(), Pool()
        watch, self._storage, self._pool = Watch(EveryShard(), respond), Stored(), pool
        self._dataflows = InstalledDataflows(self._start, respond, lambda id: self._peeks.hold(id))
        targets = InstalledPeekTargets(self._dataflows, watch, pool, pool, self._read, lambda *_: None)  # type: ignore[arg-type]
        self._peeks = PeekQueue(respond, targets, ResultStash(Path()))
        self._state = ComputeState(
            respond,
            self._dataflows,
            self._peeks,
            self._storage,  # type: ignore[arg-type]
            watch,  # type: ignore[arg-type]
            StoreWatch(pool, respond),  # type: ignore[arg-type]
            ExecutorWatch(None, lambda: None, pool, respond),  # type: ignore[arg-type]
            StatusRepeater(respond),
            metrics,
            lambda: 0,
        )
        self._worker = CommandLoop(self.mailbox, self._state, lambda: False)
        self.connect()

    def connect(self) -> None:
        self._conversation = Conversation(self.gate, self.mailbox, self._refusals)
        self.said: list[Response] = []

    def take(self, data: bytes) -> grpc.StatusCode | None:
        """Takes a frame; what it brings about is in `said`. The status that ends the connection, or None. Raises
        ConfigChanged, which ends a process."""
        before = self.snapshot()
        try:
            self._conversation.accept_frame(data)
        except (ProtocolError, EpochRefused) as error:
            assert self.snapshot() == before, "a frame that was refused has changed something"
            return self._end(error)
        self._work()
        self.said = self._heard()
        failure = self._conversation.outbox.failure
        return None if failure is None else self._end(failure)

    def _heard(self) -> list[Response]:
        """The replica's responses: nothing in the creation stage, and always something that can be sent."""
        outbox = self._conversation.outbox
        waiting = list(outbox._waiting.values())
        assert not waiting or self._conversation._stages.may_respond
        assert sum(1 for _ in pack_responses(waiting)) >= bool(waiting)
        outbox._waiting.clear()
        return waiting

    def snapshot(self) -> object:
        """All state that commands can change."""
        dataflows = [(d.description, d.processed, tuple(d.exports.items())) for d in self._dataflows]
        return (self.gate.epoch, repr(dataflows), set(self._peeks._pending), len(self._storage.taken))

    def _work(self) -> None:
        while (event := self.mailbox.take(0)) is not None:
            self._worker.handle(event)
        self._state.maintain()
        self._pool.finish()

    def _end(self, failure: Exception) -> grpc.StatusCode:
        status = status_of(failure)
        assert status in REFUSALS, failure
        self._conversation.outbox.close(failure)
        return status

    def _start(self, dataflow: InstalledDataflow, refused: Callable[[str], None]) -> Idle:
        return Idle(dataflow)

    def _read(self, peek: Peek, limits: AnswerLimits, stopped: Callable[[], bool]) -> PeekRows:
        return PeekRows(b"", 0)


class Aborted(Exception):
    """A unary call ended with this status."""

    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__(status.name)
        self.status = status


class UnaryCall:
    """The context of a call."""

    def abort(self, status: grpc.StatusCode, details: str) -> None:
        raise Aborted(status)


class StashEdge:
    """A replica with one stashed answer of several pieces, in an unnamed file."""

    UUID, ANSWER = "p", bytes(range(256)) * 8192

    def __init__(self) -> None:
        stash = ResultStash(Path(tempfile.gettempdir()))
        self._spool = ResultSpool(stash, spill_above=0)
        self._spool.write(self.ANSWER)
        stash.keep(self.UUID, StashedResult(self._spool, 1))
        self._service = ComputeService(
            EpochGate(),
            Mailbox(),
            _not_asked,
            _not_asked,
            _not_asked,
            stash.read_piece,
            _not_asked,
            _not_asked,
            _not_asked,
        )

    def take(self, data: bytes) -> grpc.StatusCode | None:
        """Serve a request; returns the status of a refusal, or None. Raises DecodeError."""
        asked = pb.FetchStashRequest.FromString(data)
        try:
            piece = self._service.fetch_stash(asked, UnaryCall())
        except Aborted as aborted:
            if aborted.status not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND):
                raise
            return aborted.status
        assert asked.uuid == self.UUID
        assert piece.data == self.ANSWER[asked.offset : asked.offset + PIECE_BYTES]
        return None

    def close(self) -> None:
        self._spool.close()


def _not_asked(*_: object) -> Any:
    raise AssertionError("of an answer alone")


class ControllerEdge:
    """A controller with one Dataflow, and one replica that may send anything."""

    def __init__(self) -> None:
        self._harness = InstanceHarness(upper=900)
        self._harness.install(as_of=300)
        self.connect()

    def connect(self) -> None:
        self._harness.connect(R1)
        self._unpacker = Unpacker.of_responses()

    def take(self, data: bytes) -> grpc.StatusCode | None:
        """Accept a frame; returns the status that ends the connection, or None."""
        before = list(self._frontiers())
        try:
            responses = self._unpacker.feed(parse_frame(data))
        except ProtocolError:
            assert list(self._frontiers()) == before
            return grpc.StatusCode.INVALID_ARGUMENT
        for response in responses:
            self._harness.hear(R1, response)
        self._harness.maintain()
        now = list(self._frontiers())
        assert all(b <= n for b, n in zip(before, now, strict=True)), "a frontier went back"
        bound = at(self._harness.now + 30_000)
        assert all(since <= bound or since.is_empty for since in self._sinces()), "a since is beyond the clock"
        return None

    def _sinces(self) -> Iterator[Frontier]:
        """The sinces that the controller has allowed: the clock bounds them, whatever replicas report."""
        for id in (INDEX, VIEW):
            collection = self._harness.instance.dataflows.collection(id)
            assert collection is not None
            yield collection.since

    def _frontiers(self) -> Iterator[Frontier]:
        for id in (INDEX, VIEW):
            collection = self._harness.instance.dataflows.collection(id)
            assert collection is not None
            yield collection.write or Frontier.minimum()


__all__ = ["ConfigChanged", "ControllerEdge", "ReplicaEdge", "StashEdge"]
