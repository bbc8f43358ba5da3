"""The state of the command loop: what each command does, and what is kept for a new client.

    commands ──► apply ──┬─► dataflows   created, scheduled, compacted, dropped      (dataflow/installed_dataflows.py)
                         ├─► peeks       waiting, running, answered                  (peek/peek_queue.py)
                         └─► storage     ingestions, shards' sinces, deletions       (storage_state.py)
    maintain ──► steps, frontiers        reconcile ──► what a new client reuses      (dataflow/reconciliation.py)

Only the command loop calls this. Commands about things that have ended are ignored: the protocol is asynchronous.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemark_protocol.errors import StageViolation
from tidemark_protocol.messages.commands import (
    AllowCompaction,
    AllowShardCompaction,
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    DeleteShard,
    DropIngestion,
    InstanceConfig,
    Peek,
    RunIngestion,
    Schedule,
    UpdateConfiguration,
)
from tidemark_replica.command_loop.describe import InstalledSummary
from tidemark_replica.command_loop.executors import ExecutorWatch
from tidemark_replica.command_loop.runtime_settings import RuntimeSettings
from tidemark_replica.command_loop.storage_state import StorageState
from tidemark_replica.dataflow.installed_dataflows import InstalledDataflows
from tidemark_replica.errors import ConfigChanged
from tidemark_replica.events.client import Client, Responder
from tidemark_replica.peek.peek_queue import PeekQueue
from tidemark_replica.shards.shards import ShardWatch
from tidemark_replica.shards.store_watch import StoreWatch
from tidemark_replica.telemetry.metrics import Metrics
from tidemark_replica.telemetry.status_repeater import StatusRepeater

LOG = logging.getLogger(__name__)
SWEEP_SECONDS = 60.0


class ComputeState:
    """The state of the command loop."""

    def __init__(
        self,
        respond: Responder,
        dataflows: InstalledDataflows,
        peeks: PeekQueue,
        storage: StorageState,
        watch: ShardWatch,
        store: StoreWatch,
        executors: ExecutorWatch,
        statuses: StatusRepeater,
        metrics: Metrics,
        sweep: Callable[[], int],
    ) -> None:
        """`statuses`: of `store` and `executors`."""
        self._config: InstanceConfig | None = None
        self._respond, self._dataflows, self._peeks = respond, dataflows, peeks
        self._storage, self._watch, self._store, self._executors = storage, watch, store, executors
        self._statuses, self._metrics = statuses, metrics
        self._sweep, self._swept, self._settings = sweep, time.monotonic(), RuntimeSettings()

    def create_instance(self, config: InstanceConfig) -> None:
        """Takes the first configuration. Raises ConfigChanged for another one."""
        if self._config is not None and self._config != config:
            raise ConfigChanged(f"this process runs with {self._config}, and the client asks for {config}")
        self._config = config
        self._store.set_location(config.storage_location)

    def detach(self) -> None:
        """The client has disconnected: its peeks end, everything else goes on."""
        self._respond.client = None
        self._peeks.drop_all()

    @property
    def storage_location(self) -> str:
        """The storage location of the instance. The instance must have been created."""
        assert self._config is not None
        return self._config.storage_location

    def reconcile(self, commands: Sequence[Command], client: Client) -> None:
        """Brings the replica to the state that the commands describe, reuses what it can, and serves the client from
        now on."""
        self._respond.client = client
        self._watch.report_again()
        self._statuses.report_again()
        allowed = {c.id: c.frontier for c in commands if isinstance(c, AllowCompaction)}
        terms = {c.id: c.term for c in commands if isinstance(c, AllowWrites)}
        wanted = [c.dataflow for c in commands if isinstance(c, CreateDataflow)]
        verdicts = self._dataflows.reconcile(wanted, allowed, terms)
        for verdict in verdicts:
            self._metrics.reconciled(verdict.reason)
            LOG.info("dataflow %s: %s", verdict.wanted.name, verdict.reason or "reused")
        self._storage.keep_only([c.ingestion.id for c in commands if isinstance(c, RunIngestion)])
        reused = {v.wanted.export_ids for v in verdicts if v.reused}
        for command in commands:
            if not (isinstance(command, CreateDataflow) and command.dataflow.export_ids in reused):
                self.apply(command)

    def apply(self, command: Command) -> None:
        """Carries out one command. Raises StageViolation for a command that contradicts earlier ones."""
        self._metrics.command(command)
        LOG.debug("command %s", type(command).__name__)
        match command:
            case CreateDataflow(description):
                self._dataflows.create(description)
            case Schedule(id):
                self._dataflows.schedule(id)
            case AllowWrites(id, term):
                self._dataflows.allow_writes(id, term)
            case AllowCompaction(id, frontier):
                self._dataflows.compact(id, frontier)
            case Peek():
                self._peeks.add(command)
            case CancelPeek(uuid):
                self._peeks.cancel(uuid)
            case UpdateConfiguration():
                self._configure(command)
            case RunIngestion() | DropIngestion() | AllowShardCompaction() | DeleteShard():
                self._storage.apply(command)
            case _:
                raise StageViolation(f"{type(command).__name__} has no meaning here")

    def maintain(self) -> bool:
        """False where the client must connect again, to create dataflows anew."""
        self._watch.maintain()
        self._store.maintain()
        self._executors.maintain()
        self._storage.maintain()
        if self._dataflows.maintain():
            hydrated = sum(len(d.exports) for d in self._dataflows if d.hydrated)
            self._metrics.installed(hydrated, sum(len(d.exports) for d in self._dataflows) - hydrated)
        if self._dataflows.take_need_of_client():
            return False
        self._peeks.maintain()
        self._maintain_scratch()
        self._metrics.set_waiting_peeks(len(self._peeks))
        return True

    def _maintain_scratch(self) -> None:
        """Sweeps scratch every SWEEP_SECONDS while no step runs. No step can start meanwhile: this thread starts
        them."""
        if time.monotonic() - self._swept > SWEEP_SECONDS and not self._dataflows.are_stepping:
            self._swept = time.monotonic()
            if swept := self._sweep():
                LOG.info("%d files of failed or cancelled steps were removed", swept)

    def describe(self) -> InstalledSummary:
        """A summary of what is installed."""
        return (self._metrics.hydrations, *self._dataflows.describe())

    def shutdown(self) -> None:
        self._storage.shutdown()
        self._dataflows.shutdown()

    def _configure(self, change: UpdateConfiguration) -> None:
        limits = self._peeks.limits
        if change.max_result_bytes is not None:
            limits = replace(limits, max_bytes=change.max_result_bytes)
        if change.stash_above_bytes is not None:
            limits = replace(limits, stash_above=change.stash_above_bytes)
        self._peeks.limits = limits
        self._settings.apply(change.settings)
