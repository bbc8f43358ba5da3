"""The ingestions of an instance: which replica runs each, and the bindings that are still needed.

run ─► RunIngestion to its replica, again on each of its connections      drop ─► DropIngestion
remap shard held from the slowest table on, until every table holds what its bindings bind
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemark_operator.controller.frontiers.read_policy import before
from tidemark_operator.controller.frontiers.shards import ShardBook, ingesting
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, ReplicaId, Time
from tidemark_protocol.messages.commands import Command, DropIngestion, RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.plan.ingestion import IngestionDescription


class IngestionRegistry:
    """`send`: sends a command to one replica, if it is connected."""

    def __init__(self, shards: ShardBook, send: Callable[[ReplicaId, Command], bool]) -> None:
        self._shards, self._send = shards, send
        self._running: dict[GlobalId, tuple[ReplicaId, RunIngestion]] = {}

    def get(self, id: GlobalId) -> tuple[ReplicaId, RunIngestion] | None:
        """The ingester and its command; None where the ingestion is not running."""
        return self._running.get(id)

    def run(self, replica: ReplicaId, command: RunIngestion) -> None:
        """Make this replica the ingester; the one before is told to stop."""
        id = command.ingestion.id
        old = self._running.get(id)
        if old is not None and old[0] != replica:
            self.drop(id)
        self._running[id] = (replica, command)
        self._hold_remap(command.ingestion)
        self._send(replica, command)

    def drop(self, id: GlobalId) -> None:
        """Stop an ingestion."""
        old = self._running.pop(id, None)
        if old is not None:
            self._send(old[0], DropIngestion(id))

    def replay(self, replica: ReplicaId, now_ms: int) -> list[RunIngestion]:
        """The commands for a new connection, with the present time as the bound of its ticks."""
        return [replace(run, controller_now=Time(now_ms)) for to, run in self._running.values() if to == replica]

    def maintain(self) -> None:
        """Release bindings that all tables have passed."""
        for _, run in self._running.values():
            self._hold_remap(run.ingestion)

    def record(self, replica: ReplicaId, status: IngestionStatus, now_ms: int) -> None:
        """Send the time again to an ingester that reports ClockSkew: it may have received its command late."""
        running = self._running.get(status.id)
        skewed = status.state == "waiting" and status.message.startswith("ClockSkew")
        if skewed and running is not None and running[0] == replica:
            self._send(replica, replace(running[1], controller_now=Time(now_ms)))

    def _hold_remap(self, ingestion: IngestionDescription) -> None:
        """Hold the bindings that some table still needs. The hold stays while the ingestion is suspended."""
        tables = [self._shards.frontiers(t.shard.shard_id) for t in ingestion.tables]
        uppers = [f.upper if f else Frontier.minimum() for f in tables]
        self._shards.register(ingestion.remap_id, ingestion.remap_location)
        self._shards.hold(ingestion.remap_id, ingesting(ingestion.id), before(meet(uppers)))
