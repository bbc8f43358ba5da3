"""Events that an instance sends to its host: news that somebody may wait for. Frontiers that merely advance are
none."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.controller.answers.copies import CopyAnswer
from tidemark_operator.controller.answers.peeks import PeekAnswer
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.hydration.hydration_gate import MemoryExhaustion
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_protocol.messages.responses import IngestionStatus, ShardDeleted
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.plan.sinks.postgres import PostgresSink

QUIET = frozenset(
    {"steps", "arrangements", "operators", "rows", "hydration", "catch_up", "published"}
    | {PostgresSink.KIND, KafkaSink.KIND}
)
"""Kinds of Status that repeat. No condition shows them at once: the budget of status writes does."""


@dataclass(frozen=True)
class ShardAppeared:
    """A shard's frontiers are known, or it holds data, for the first time."""

    id: ShardId


@dataclass(frozen=True)
class DataflowChanged:
    """A dataflow hydrated, was scheduled, or reports an error: something that a condition shows."""

    owner: str


@dataclass(frozen=True)
class DataflowGone:
    """Every replica is done with a dataflow that was dropped."""

    owner: str


@dataclass(frozen=True)
class SuspectCleared:
    """A suspect has hydrated."""

    owner: str


@dataclass(frozen=True)
class HydrationOutOfMemory:
    """A hydration ran out of memory in a process beside the replica's, which lives on."""

    replica: ReplicaId
    ran_out: MemoryExhaustion


@dataclass(frozen=True)
class IngestionReported:
    """A replica reports the state of an ingestion."""

    replica: ReplicaId
    status: IngestionStatus


@dataclass(frozen=True)
class ShardRemoved:
    """A replica answers a request to delete a shard."""

    replica: ReplicaId
    answer: ShardDeleted


Answer = PeekAnswer | SubscribeAdvanced | CopyAnswer
News = ShardAppeared | DataflowChanged | DataflowGone | SuspectCleared | HydrationOutOfMemory
Notice = Answer | News | IngestionReported | ShardRemoved
