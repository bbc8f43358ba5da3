"""A replica's own state machine, with shards that are numbers and drivers that compute nothing.

    EpochGate, CommandLoop, ComputeState, InstalledDataflows, PeekQueue, InstalledPeekTargets, Outbox   the real ones
    Driver                                    reads [lower, upper) of its inputs: allowed, or a violation
    Watch, Storage                            see the simulated shards

A collection's contents at a time are a function of its inputs' at that time, so nothing can be wrong but to read a time
that has been compacted, or that is not complete: that is what drivers and peeks check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.model.fake_pool import Pool
from tests.model.finished_tables import all_finished
from tests.model.shards import Shards, Storage, Violation, Watch
from tests.model.subscribes import Copier, Sender
from tidemark_operator.controller.replicas.excluded_dataflows import tables_of
from tidemark_protocol.errors import ProtocolError
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import Epoch, GlobalId, ShardId
from tidemark_protocol.messages.commands import (
    Command,
    CreateDataflow,
    CreateInstance,
    Hello,
    InitializationComplete,
    InstanceConfig,
    Peek,
)
from tidemark_protocol.messages.responses import Description, PeekRows, Response
from tidemark_protocol.plan.dataflow import CopyToSink, MaterializedViewSink, ShardSink, SinkExport, SubscribeSink
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES
from tidemark_replica.command_loop.compute_state import ComputeState
from tidemark_replica.command_loop.executors import ExecutorWatch
from tidemark_replica.command_loop.loop import CommandLoop
from tidemark_replica.dataflow.export_state import ExportState
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.dataflow.installed_dataflows import InstalledDataflows
from tidemark_replica.errors import EpochRefused
from tidemark_replica.events.client import Client, Responder
from tidemark_replica.events.mailbox import ClientDisconnected, CommandsArrived, Mailbox
from tidemark_replica.events.outbox import Outbox
from tidemark_replica.peek.peek_queue import PeekQueue
from tidemark_replica.peek.peek_targets import InstalledPeekTargets
from tidemark_replica.peek.result_stash import ResultStash
from tidemark_replica.server.epoch_gate import EpochGate
from tidemark_replica.server.refusal_log import RefusalLog
from tidemark_replica.server.server import Conversation
from tidemark_replica.shards.store_watch import StoreWatch
from tidemark_replica.telemetry.metrics import Metrics
from tidemark_replica.telemetry.status_repeater import StatusRepeater

TERM = 2**63 - 1
"""The highest leadership term that there can be: a stranger's is none above it."""
CONFIG, METRICS = InstanceConfig("default", "/data"), Metrics()


@dataclass
class Driver:
    """Steps by at most `fuel` at a time. A shard that it may not read any more stalls it, as persist would."""

    dataflow: InstalledDataflow
    replica: SimReplica
    since: dict[GlobalId, Frontier] = field(default_factory=dict)
    senders: dict[GlobalId, Sender | Copier] = field(default_factory=dict)
    stalled: str = ""
    stopped: bool = False

    def __post_init__(self) -> None:
        plan = self.dataflow.description
        views = [e.sink.shard.shard_id for e in plan.sink_exports if isinstance(e.sink, ShardSink)]
        for shard in (*self._inputs, *views):
            self.replica.watch.follow(shard, "", self.dataflow)
        if views and plan.until is not None and plan.until <= plan.as_of and not self._is_finished:
            raise Violation(f"{views[0]} ends before {plan.until}, and begins at {plan.as_of}")

    def advance(self) -> None:
        for sender in self.senders.values() if not self.stopped else ():
            self._send(sender)
        if self._is_finished:
            self.dataflow.processed, self.dataflow.hydrated, self.stalled = Frontier.empty(), True, ""
        processed = self.dataflow.processed.time
        upper = self.input_frontier()
        if self.stopped or self.dataflow.refusal or processed is None or not self.replica.fuel or upper <= processed:
            return
        begins = processed if not self.dataflow.hydrated else processed - 1
        self.stalled = self._unreadable(begins)
        if self.stalled:
            return
        reached = Frontier.at(min(upper, processed + self.replica.fuel))
        until = self.dataflow.description.until
        self.dataflow.processed = Frontier.empty() if until is not None and until <= reached.encode() else reached
        self.dataflow.hydrated = True
        self._write()

    def input_frontier(self) -> int:
        shards = [Frontier.decode(self.replica.shards[s].upper) for s in self._inputs]
        return meet([*shards, *(d.processed for d in self.dataflow.imports.values())]).encode()

    @property
    def _is_finished(self) -> bool:
        """All that there is to do is done, by whomever."""
        return all_finished(self.replica.shards[table].upper for table in tables_of(self.dataflow.description))

    @property
    def _inputs(self) -> list[ShardId]:
        return [i.shard.shard_id for i in self.dataflow.description.source_imports]

    def _unreadable(self, begins: int) -> str:
        for shard in self._inputs:
            if self.replica.shards[shard].since > begins:
                return f"{shard} from {begins} on, its since is {self.replica.shards[shard].since}"
        for id, exporter in self.dataflow.imports.items():
            kept = self.replica.drivers[exporter].since.get(id, Frontier.minimum())
            if not kept.less_equal(begins):
                return f"index {id} from {begins} on, it was compacted to {kept}"
        return ""

    def _write(self) -> None:
        """Whoever is first appends; the processed time of others is behind what is written."""
        for export in self.dataflow.description.sink_exports:
            if not isinstance(export.sink, MaterializedViewSink):
                self._send(self._sender(export))
                continue
            shard, term = self.replica.shards[export.sink.shard.shard_id], self.dataflow.exports[export.id].term
            processed = self.dataflow.processed.encode()
            if term is None or term < shard.term or processed <= shard.upper:
                continue
            if shard.upper > 0 and self.dataflow.as_of.encode() >= shard.upper:
                raise Violation(
                    f"{export.id} begins at {self.dataflow.as_of}, but was written only up to {shard.upper}"
                )
            shard.upper, shard.term = processed, term

    def _sender(self, export: SinkExport) -> Sender | Copier:
        as_of, sink = self.dataflow.description.as_of, export.sink
        assert isinstance(sink, SubscribeSink | CopyToSink)
        made = Sender(export.id, sink, as_of) if isinstance(sink, SubscribeSink) else Copier(export.id, as_of)
        return self.senders.setdefault(export.id, made)

    def _send(self, sender: Sender | Copier) -> None:
        for response in sender.send(self.dataflow.processed.encode()):
            self.replica.respond(response)

    def drop(self, id: GlobalId) -> Response | None:
        for export in self.dataflow.description.sink_exports:
            if export.id == id:
                return self._sender(export).drop()
        return None

    def write_frontier(self, id: GlobalId) -> Frontier:
        for export in self.dataflow.description.sink_exports:
            if export.id == id and isinstance(export.sink, MaterializedViewSink):
                return Frontier.decode(self.replica.shards[export.sink.shard.shard_id].upper)
        return self.dataflow.processed

    def allow_compaction(self, id: GlobalId, since: Frontier) -> None:
        self.since[id] = max(self.since.get(id, Frontier.minimum()), since)

    def allow_writes(self, export: ExportState) -> None:
        for sink in self.dataflow.description.sink_exports:
            if sink.id != export.id or not isinstance(sink.sink, MaterializedViewSink) or export.term is None:
                continue
            allowed = self.replica.shards[sink.sink.shard.shard_id].allowed
            if allowed is not None and export.term > allowed:
                raise Violation(f"{sink.id} may write under term {export.term} before it took over")

    @property
    def is_stepping(self) -> bool:
        return False

    @property
    def is_superseded(self) -> bool:
        return False

    def retry_now(self) -> None:
        pass

    def report_again(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True
        self.replica.watch.unfollow(self.dataflow)


class SimReplica:
    """One incarnation of a replica: a SIGKILL makes another. Its gate, worker, state machine and outbox are real.
    `understands`: what its image does of plans."""

    def __init__(self, shards: Shards, understands: tuple[str, ...] = SUPPORTED_FEATURES) -> None:
        self.shards, self.fuel, self.understands = shards, 0, understands
        self.drivers: dict[InstalledDataflow, Driver] = {}
        respond = self.respond = Responder(METRICS)
        self._pool, self.watch, self._outbox = Pool(), Watch(shards, respond), Outbox()
        self._client: Client | None = None
        self._initialized, self._greeted, self._gate, self._mailbox = False, 0, EpochGate(), Mailbox()
        self.dataflows = InstalledDataflows(self._start, respond, lambda id: self._peeks.hold(id))
        targets = InstalledPeekTargets(self.dataflows, self.watch, self._pool, self._pool, self._read, lambda *_: None)  # type: ignore[arg-type]
        self._peeks = PeekQueue(respond, targets, ResultStash(Path()))
        pool: Any = self._pool
        sees: tuple[Any, Any] = (Storage(shards, respond), self.watch)
        looks = StoreWatch(pool, respond), ExecutorWatch(None, lambda: None, pool, respond), StatusRepeater(respond)
        self.state = ComputeState(respond, self.dataflows, self._peeks, *sees, *looks, METRICS, lambda: 0)
        self._worker = CommandLoop(self._mailbox, self.state, lambda: False)

    def greet(self, connection: int | None = None) -> None:
        """A new client: nobody is told anything until it has said all that there should be."""
        self._greeted = self._greeted + 1 if connection is None else connection
        hello = Hello(f"nonce {self._greeted}", Epoch(TERM, self._greeted))
        self._outbox, self._initialized = Outbox(), False
        self._client = Client(hello, self._outbox)
        self._gate.admit(self._client)
        self._deliver(hello, CreateInstance(CONFIG))

    def take(self, command: Command) -> None:
        self._initialized = self._initialized or isinstance(command, InitializationComplete)
        if isinstance(command, CreateDataflow) and not command.dataflow.required_features.issubset(self.understands):
            raise Violation(f"it cannot read the plan of {command.dataflow.name}, and ends its connection")
        self._deliver(command)

    def hang_up(self) -> None:
        """It notices that its client is gone."""
        if self._client is not None:
            self._worker.handle(ClientDisconnected(self._client))
            self._initialized = False

    def drain(self) -> list[Response]:
        """The responses so far."""
        reported = list(self._outbox._waiting.values())
        self._outbox._waiting.clear()
        return reported

    def intrude(self, frames: Iterable[bytes]) -> None:
        """Frames of a stranger, on a connection of its own: refused, or without effect, if it has had a client."""
        if self._client is None:
            return
        before = (self._gate.epoch, self.state.describe())
        stranger = Conversation(self._gate, self._mailbox, RefusalLog())
        try:
            for data in frames:
                stranger.accept_frame(data)
        except (ProtocolError, EpochRefused):
            pass
        assert self._mailbox.take(0) is None, "a stranger was listened to"
        assert (self._gate.epoch, self.state.describe()) == before, "a stranger has changed something"
        assert self._outbox.failure is None, "a stranger has taken the client's place"

    def _deliver(self, *commands: Command) -> None:
        assert self._client is not None
        self._client.acquire_frame()
        self._worker.handle(CommandsArrived(self._client, commands))

    def work(self, fuel: int) -> None:
        """Maintenance, in which each dataflow may step by `fuel`."""
        self.fuel = fuel
        self.state.maintain()
        self.fuel = 0
        self._pool.finish()

    def describe(self, shards: list[ShardId]) -> Description:
        return Description("", None, *self.state.describe(), tuple(map(self.watch.state, shards)), self.understands)

    @property
    def is_served(self) -> bool:
        """Whether its client has said all that there should be."""
        return self._initialized

    @property
    def stalled(self) -> list[str]:
        return [f"{d.description.name}: {self.drivers[d].stalled}" for d in self.dataflows if self.drivers[d].stalled]

    def _start(self, dataflow: InstalledDataflow, refused: Callable[[str], None]) -> Driver:
        self.drivers[dataflow] = Driver(dataflow, self)
        return self.drivers[dataflow]

    def _read(self, peek: Peek, *limits: object) -> PeekRows:
        """Read as the pool does it, possibly long after the peek was admitted."""
        dataflow = self.dataflows.find(peek.target.id)
        if dataflow is not None:
            since = self.drivers[dataflow].since.get(peek.target.id, Frontier.minimum())
            if not since.less_equal(peek.timestamp) or dataflow.processed.less_equal(peek.timestamp):
                raise Violation(f"a peek at {peek.timestamp} of {peek.target.id}, kept from {since} on")
        return PeekRows(str(peek.timestamp).encode(), 1)
