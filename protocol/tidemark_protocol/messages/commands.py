"""Commands: what the controller tells a replica, one frozen dataclass each.

The order of a conversation (the stages of docs/protocol.md):

    Hello, CreateInstance                      creation: the replica answers nothing
    any commands, InitializationComplete       initialization: the replica brings itself to the state asked for
    any commands                               computation

Delivery is ordered; nothing is said about when. Either side must take messages about things that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.ingestion import IngestionDescription
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import Column
from tidemark_protocol.vocabulary import wire_name


@dataclass(frozen=True)
class Hello:
    """First on every connection. `nonce` differs from that of every earlier connection."""

    nonce: str
    epoch: Epoch


@dataclass(frozen=True)
class CreateTimely:
    """First on a connection of the older generation (legacy_protocol.py); it has an epoch and no nonce."""

    epoch: Epoch


@wire_name("InstanceConfig")
@dataclass(frozen=True)
class InstanceConfig:
    """What all dataflows of the instance share. A replica whose running config differs must not go on with it:
    its process ends and starts anew."""

    instance: str
    storage_location: str


@dataclass(frozen=True)
class CreateInstance:
    """Second on every connection; once."""

    config: InstanceConfig


@dataclass(frozen=True)
class InitializationComplete:
    """The commands so far are all that there was: now reconcile. Once per connection."""


@dataclass(frozen=True)
class UpdateConfiguration:
    """New values for what is set; None and absent keys stay. Takes effect at once, also for peeks in flight.
    `max_result_bytes`: a larger answer is an error. `stash_above_bytes`: a larger one is stashed; until it is set,
    none is, and an answer must fit a message. `settings`: by the names of replica_settings.py."""

    max_result_bytes: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    stash_above_bytes: int | None = None


@dataclass(frozen=True)
class CreateDataflow:
    """Build it, suspended, read-only. Imported indexes exist already; inputs' since <= as_of; export ids are new."""

    dataflow: DataflowDescription


@dataclass(frozen=True)
class Schedule:
    """Start the work for this export; a dataflow starts once all of its exports are scheduled. Idempotent."""

    id: GlobalId


@dataclass(frozen=True)
class AllowWrites:
    """The sink may write to its shard, under this term. Irreversible; idempotent for the same term."""

    id: GlobalId
    term: WriterTerm


@dataclass(frozen=True)
class AllowAllWrites:
    """The older generation's AllowWrites: every sink that there is, or will be, may write. Irreversible."""


@dataclass(frozen=True)
class AllowCompaction:
    """External readers need nothing before `frontier`. Empty: drop it; all frontiers must then be reported empty."""

    id: GlobalId
    frontier: Frontier


@wire_name("IndexTarget")
@dataclass(frozen=True)
class IndexTarget:
    id: GlobalId


@wire_name("ShardTarget")
@dataclass(frozen=True)
class ShardTarget:
    id: GlobalId
    shard: ShardMetadata


@wire_name("Peek")
@dataclass(frozen=True)
class Peek:
    """Read a collection at `timestamp`. Exactly one PeekResponse is owed.

    `mfp` runs over the collection's columns; `columns` name its output. `literals`: if not None, only rows whose
    index key equals one of these. A replica is a whole copy, so its answer is final: `finishing` has been applied.
    """

    uuid: str
    target: IndexTarget | ShardTarget
    timestamp: Time
    mfp: MapFilterProject
    finishing: Finishing
    columns: tuple[Column, ...]
    literals: tuple[tuple[Literal, ...], ...] | None = None


@dataclass(frozen=True)
class CancelPeek:
    """No answer is needed any more; one that was given already is not followed by a second. A stashed one goes."""

    uuid: str


@dataclass(frozen=True)
class RunIngestion:
    """Ingest this source, under this term, until dropped or fenced. Sent again, it replaces the description of the
    same id. Ticks beyond `controller_now` (+ the time passed since) + `max_ahead_ms` must not be minted."""

    ingestion: IngestionDescription
    term: WriterTerm
    controller_now: Time
    max_ahead_ms: int


@dataclass(frozen=True)
class DropIngestion:
    """Stop ingesting; shards stay."""

    id: GlobalId


@dataclass(frozen=True)
class AllowShardCompaction:
    """No one reads the shard before `frontier`. The shard itself stays, also at the empty frontier."""

    id: ShardId
    location: str
    frontier: Frontier


@dataclass(frozen=True)
class DeleteShard:
    """Remove the shard and its files. Answered by ShardDeleted, also when it was gone already."""

    id: ShardId
    location: str


ComputeCommand = (
    Hello
    | CreateInstance
    | InitializationComplete
    | UpdateConfiguration
    | CreateDataflow
    | Schedule
    | AllowWrites
    | AllowCompaction
    | Peek
    | CancelPeek
)
StorageCommand = RunIngestion | DropIngestion | AllowShardCompaction | DeleteShard
LegacyCommand = CreateTimely | AllowAllWrites
"""Translated at the edge of a connection (legacy_protocol.py)."""
Command = ComputeCommand | StorageCommand | LegacyCommand
