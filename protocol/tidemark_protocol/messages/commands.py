"""Commands: messages of the controller to a replica, one frozen dataclass each.

The order of a conversation (the stages of docs/protocol.md):

    Hello, CreateInstance                      creation: the replica sends no response
    any commands, InitializationComplete       initialization: the replica reconciles its state with the commands
    any commands                               computation

Delivery is ordered and asynchronous. Either side must accept messages about objects that it has dropped.
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

TRACE_CONTEXT_MAX = 64
"""Characters of a trace context: a `traceparent` of version 00 has 55."""


@dataclass(frozen=True)
class Hello:
    """First on every connection. `nonce` differs from that of every earlier connection."""

    nonce: str
    epoch: Epoch


@dataclass(frozen=True)
class CreateTimely:
    """First on a connection of the older generation (legacy_protocol.py). It has an epoch and no nonce."""

    epoch: Epoch


@wire_name("InstanceConfig")
@dataclass(frozen=True)
class InstanceConfig:
    """Settings that all dataflows of the instance share. A replica that runs with others must end its process and start
    anew.
    """

    instance: str
    storage_location: str


@dataclass(frozen=True)
class CreateInstance:
    """Second on every connection, exactly once."""

    config: InstanceConfig


@dataclass(frozen=True)
class InitializationComplete:
    """The commands so far describe the whole state: the replica reconciles now. Exactly once per connection."""


@dataclass(frozen=True)
class UpdateConfiguration:
    """New values; None and absent keys leave a value as it is. Takes effect at once, also for peeks under way.

    `max_result_bytes`: a larger answer is an error. `stash_above_bytes`: a larger answer is stashed; while it is unset,
    no
    answer is stashed, and answers must fit a message. `settings`: see replica_settings.py.
    """

    max_result_bytes: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    stash_above_bytes: int | None = None


@dataclass(frozen=True)
class CreateDataflow:
    """Build the dataflow, suspended and read-only. Imported indexes exist; every input's since <= as_of; export ids are
    new.
    """

    dataflow: DataflowDescription


@dataclass(frozen=True)
class Schedule:
    """Start the work for this export. A dataflow starts once all of its exports are scheduled. Idempotent."""

    id: GlobalId


@dataclass(frozen=True)
class AllowWrites:
    """The sink may write to its shard under this term. Irreversible; idempotent for the same term."""

    id: GlobalId
    term: WriterTerm


@dataclass(frozen=True)
class AllowAllWrites:
    """The older generation's AllowWrites: every sink, present or future, may write. Irreversible."""


@dataclass(frozen=True)
class AllowCompaction:
    """Nobody reads the collection before `frontier`. Empty: drop it; the replica must then report all its frontiers as
    empty.
    """

    id: GlobalId
    frontier: Frontier


@wire_name("IndexTarget")
@dataclass(frozen=True)
class IndexTarget:
    """A peek reads an index."""

    id: GlobalId


@wire_name("ShardTarget")
@dataclass(frozen=True)
class ShardTarget:
    """A peek reads a shard."""

    id: GlobalId
    shard: ShardMetadata


@wire_name("Peek")
@dataclass(frozen=True)
class Peek:
    """Read a collection at `timestamp`. The replica owes exactly one PeekResponse.

    `mfp` runs over the columns of the collection; `columns` name its output. `literals`: if not None, only rows whose
    index
    key equals one of these. A replica holds whole collections, so its answer is final: `finishing` has been applied.
    `skip_errors`: the answer leaves errors out and counts them. Replicas older than this field answer with an error.
    `trace_context`: the span that asks (tracing.py); empty where the query is not traced.
    """

    uuid: str
    target: IndexTarget | ShardTarget
    timestamp: Time
    mfp: MapFilterProject
    finishing: Finishing
    columns: tuple[Column, ...]
    literals: tuple[tuple[Literal, ...], ...] | None = None
    skip_errors: bool = False
    trace_context: str = ""


@dataclass(frozen=True)
class CancelPeek:
    """Nobody needs the answer any more.

    An answer that was sent is not followed by another; a stashed one is removed.
    """

    uuid: str


RELEASE, REREAD = "release", "reread"


@dataclass(frozen=True)
class FileRequest:
    """A person's request about a bound file of a table of the source. `id`: unique among the requests about this file.

    `release`: take back its rows and its errors. `reread`: replace them by what the file holds now.
    """

    id: int
    action: str
    table: str
    file: str


@dataclass(frozen=True)
class RunIngestion:
    """Ingest this source under this term until the ingestion is dropped or fenced. A second one replaces the
    description.

    The replica must not mint ticks beyond `controller_now` + the time passed since + `max_ahead_ms`. It owes a
    FileOutcome for each of the `requests`, in each status from then on, however often it has received them.
    """

    ingestion: IngestionDescription
    term: WriterTerm
    controller_now: Time
    max_ahead_ms: int
    requests: tuple[FileRequest, ...] = ()


@dataclass(frozen=True)
class DropIngestion:
    """Stop ingesting; shards stay."""

    id: GlobalId


@dataclass(frozen=True)
class AllowShardCompaction:
    """Nobody reads the shard before `frontier`. The shard stays, even at the empty frontier."""

    id: ShardId
    location: str
    frontier: Frontier


@dataclass(frozen=True)
class DeleteShard:
    """Delete the shard and its files, or the published table that the id names (`plan/sinks/publish.removal_id`). The
    replica answers with ShardDeleted, also if it was gone already."""

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
