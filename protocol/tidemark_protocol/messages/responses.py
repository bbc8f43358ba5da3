"""Responses: messages of a replica to its controller, one frozen dataclass each.

Every response follows from an earlier command. No response is sent for ids that no command created.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.types import Column


@dataclass(frozen=True)
class Frontiers:
    """The progress of an index or a materialized view. None: that kind has not changed.

    `write`: contents at times below it are final. `input`: inputs at times below it have been read. `output`: times
    below it
    have been processed. Each kind starts at or beyond as_of, never regresses, and is not reported again once empty.
    """

    id: GlobalId
    write: Frontier | None = None
    input: Frontier | None = None
    output: Frontier | None = None


@dataclass(frozen=True)
class PeekRows:
    """The answer: an Arrow IPC stream of the columns of the peek, and its number of rows. `skipped`: the errors that it
    leaves out."""

    data: bytes
    row_count: int
    skipped: int = 0


@dataclass(frozen=True)
class PeekStashed:
    """An answer too large for one message: its Arrow IPC stream of `size` bytes stays on the replica.

    The controller fetches it in pieces, until CancelPeek or until the connection ends.
    """

    row_count: int
    size: int
    skipped: int = 0


@dataclass(frozen=True)
class PeekError:
    """The peek failed. `is_deterministic`: every replica would give this error, since the data or the query causes it.

    Replicas older than this field leave it False.
    """

    message: str
    is_deterministic: bool = False


@dataclass(frozen=True)
class PeekCanceled:
    """The peek ended by a CancelPeek."""


PeekResult = PeekRows | PeekStashed | PeekError | PeekCanceled


@dataclass(frozen=True)
class PeekResponse:
    """Exactly one per Peek. `trace_context`: the replica's span; empty where the peek is not traced."""

    uuid: str
    result: PeekResult
    trace_context: str = ""


@dataclass(frozen=True)
class SubscribeBatch:
    """All updates in [lower, upper), consolidated, as an Arrow IPC stream; or the error that ends the subscribe.

    The stream has the columns `c0 ... cn-1, __time, __diff, __part`, ordered by time and part. A part is a hash of the
    row:
    updates of one time that do not fit one message are split by it. `upper_part` of a batch, and `lower_part` of the
    next,
    give the part within that time; bounds are compared as (frontier, part).

    `is_void`, of an error: another program changed what is read, so what was sent is not the past of what would follow.
    No replica can go on from it, and its bounds mean nothing.
    """

    lower: Frontier
    upper: Frontier
    updates: bytes = b""
    error: str | None = None
    lower_part: int = 0
    upper_part: int = 0
    is_void: bool = False


@dataclass(frozen=True)
class SubscribeDropped:
    """The subscribe was dropped; `frontier` is the upper of its last batch."""

    frontier: Frontier


@dataclass(frozen=True)
class SubscribeResponse:
    """A batch, or the end, of the subscribe `id`."""

    id: GlobalId
    result: SubscribeBatch | SubscribeDropped


@dataclass(frozen=True)
class CopyToDone:
    """The copy is complete."""

    row_count: int


@dataclass(frozen=True)
class CopyToFailed:
    """The copy failed; its location does not exist."""

    message: str


@dataclass(frozen=True)
class CopyToDropped:
    """The copy was dropped before it was complete."""


@dataclass(frozen=True)
class CopyToResponse:
    """Exactly one per copy-to sink."""

    id: GlobalId
    result: CopyToDone | CopyToFailed | CopyToDropped


@dataclass(frozen=True)
class Status:
    """Introspection that nothing may depend on but the choice of plans; kind `hydration`, `erroring`, `rows`, ..."""

    id: GlobalId
    kind: str
    fields: dict[str, str] = field(default_factory=dict)


class FailureKind(StrEnum):
    """The kind of a failure. REFUSED: the replica cannot compute the dataflow; FENCED: a newer writer has the sink's
    table."""

    REFUSED = "refused"
    FENCED = "fenced"
    RENDER = "render"
    STEP = "step"
    SINK = "sink"


OUT_OF_MEMORY = "OutOfMemory"
"""The reason of a Failure whose hydration is tried again when it is scheduled again."""


@dataclass(frozen=True)
class Failure:
    """An export does not go on at the replica. The answer of a query, a slot and a retry depend on it.

    `reason`: OUT_OF_MEMORY or empty. `attempts`: how many have failed, 0 where they are not counted. `stopped`: the
    replica does not try again by itself. `repeated`: of an attempt before the client connected. A later Failure of the
    same kind replaces it; a step or an append that succeeds ends it.
    """

    id: GlobalId
    kind: FailureKind
    message: str
    reason: str = ""
    attempts: int = 0
    stopped: bool = False
    repeated: bool = False


@dataclass(frozen=True)
class ShardFrontiers:
    """The frontiers of a watched shard."""

    id: ShardId
    upper: Frontier
    since: Frontier


@dataclass(frozen=True)
class SourceFile:
    """A file of a table of a source. `size`: in bytes. `errors`: its error rows in the table.

    `state`: pending (listed, not bound yet), read, refused (as a whole, for `reason`), released (its rows were taken
    back). `time`: when it came into this state, in milliseconds since 1970. `rows`, `time` None: before the ingester
    began.
    """

    table: str
    file: str
    size: int
    state: str
    reason: str = ""
    errors: int = 0
    rows: int | None = None
    time: Time | None = None


@dataclass(frozen=True)
class FileOutcome:
    """The outcome of a FileRequest. `refusal`: why nothing was changed; empty: it is done."""

    id: int
    refusal: str = ""


@dataclass(frozen=True)
class TableReport:
    """The progress of ingestion of a table of a source.

    `rows`: updates in the shard's files. `bytes`: of these files. `behind`: what the source has and the table lacks, in
    `unit` (files, versions, bytes, offsets); None: unknown. `snapshot_percent`: while the first rows are read, or those
    after a gap of a Delta table, and of kinds that know it. `malformed`: records that could not be decoded, in the
    table or set aside. `error`: the last one, `errors` of them since the ingester began, at `error_time` in
    milliseconds since 1970. `stopped`: the table takes no further binding.
    """

    table: str
    rows: int = 0
    bytes: int = 0
    behind: int | None = None
    unit: str = ""
    snapshot_percent: int | None = None
    malformed: int = 0
    error: str = ""
    errors: int = 0
    error_time: Time | None = None
    stopped: bool = False


@dataclass(frozen=True)
class IngestionStatus:
    """`state`: running, waiting, fenced, failed. `message`: the reason, or a remark of a running ingestion.

    Counters of files: `files`, `waiting_files`, `changed_files`, `bad_files` (with error rows in their table now).
    `activity`: what the ingester has been busy with for seconds, such as a large file.
    `files`: at most LISTED_FILES of them, those that need attention first, then the newest.
    """

    id: GlobalId
    state: str
    message: str = ""
    counters: dict[str, int] = field(default_factory=dict)
    files: tuple[SourceFile, ...] = ()
    outcomes: tuple[FileOutcome, ...] = ()
    activity: str = ""
    tables: tuple[TableReport, ...] = ()


@dataclass(frozen=True)
class ShardDeleted:
    """The answer to DeleteShard; `error` None: the shard is gone."""

    id: ShardId
    error: str | None = None


ComputeResponse = Frontiers | PeekResponse | SubscribeResponse | CopyToResponse | Status | Failure
StorageResponse = ShardFrontiers | IngestionStatus | ShardDeleted
Response = ComputeResponse | StorageResponse


@dataclass(frozen=True)
class DescribedDataflow:
    """`reads_from`: the earliest time that the dataflow still reads of its inputs; None where the replica does not
    report it.
    """

    export_ids: tuple[GlobalId, ...]
    digest: str
    as_of: Time
    reads_from: Frontier | None = None


@dataclass(frozen=True)
class DescribedCollection:
    """The frontiers of an index."""

    id: GlobalId
    since: Frontier
    write: Frontier


@dataclass(frozen=True)
class DescribedShard:
    """A shard as the replica finds it. `error`: it exists but cannot be read now; the numbers are then old or minimal.

    `owner`: the id stored in the table; `columns`: those of the table, nullable. Both only where the replica reports
    them.
    """

    id: ShardId
    exists: bool
    upper: Frontier
    since: Frontier
    term: WriterTerm
    error: str | None = None
    owner: ShardId | None = None
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Description:
    """The answer to Describe: the state of a replica, from which a controller chooses as_ofs. `plan_features`: see
    plan/plan_features.py.
    """

    incarnation: str
    epoch: Epoch | None
    hydrations: int
    dataflows: tuple[DescribedDataflow, ...]
    collections: tuple[DescribedCollection, ...]
    shards: tuple[DescribedShard, ...]
    plan_features: tuple[str, ...] = ()
