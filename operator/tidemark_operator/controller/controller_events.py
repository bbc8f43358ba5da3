"""What an instance tells those around it: news that somebody may wait for. Frontiers that merely advance are none."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.controller.answers.copies import CopyAnswer
from tidemark_operator.controller.answers.peeks import PeekAnswer
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.hydration.hydration_gate import OutOfMemory
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_protocol.messages.responses import IngestionStatus, ShardDeleted

QUIET = frozenset({"steps", "arrangements", "operators", "hydration"})
"""Kinds of Status that come again and again: no condition shows them, or within the budget of writes."""


@dataclass(frozen=True)
class ShardAppeared:
    """A shard's frontiers are known, or it holds data, for the first time."""

    id: ShardId


@dataclass(frozen=True)
class DataflowChanged:
    """Hydrated, scheduled, erroring: something that a condition shows."""

    owner: str


@dataclass(frozen=True)
class DataflowGone:
    """Every replica is done with a dataflow that was dropped."""

    owner: str


@dataclass(frozen=True)
class SuspectCleared:
    """It was blamed for the death of a replica, and has hydrated now."""

    owner: str


@dataclass(frozen=True)
class HydrationOutOfMemory:
    """Of memory, in a process beside the replica's own, which lives on."""

    replica: ReplicaId
    ran_out: OutOfMemory


@dataclass(frozen=True)
class IngestionReported:
    replica: ReplicaId
    status: IngestionStatus


@dataclass(frozen=True)
class ShardRemoved:
    replica: ReplicaId
    answer: ShardDeleted


Answer = PeekAnswer | SubscribeAdvanced | CopyAnswer
News = ShardAppeared | DataflowChanged | DataflowGone | SuspectCleared | HydrationOutOfMemory
Notice = Answer | News | IngestionReported | ShardRemoved
