"""Responses: what a replica tells its controller, one frozen dataclass each.

Every response is owed to an earlier command; none is sent for ids that no command created.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.types import Column


@dataclass(frozen=True)
class Frontiers:
    """How far an index or a materialized view is. None: that kind is unchanged.

    `write`: times below are sealed; `input`: input below has been read; `output`: times below have been processed.
    Each kind starts at or beyond as_of, never goes back, and once empty is never reported again.
    """

    id: GlobalId
    write: Frontier | None = None
    input: Frontier | None = None
    output: Frontier | None = None


@dataclass(frozen=True)
class PeekRows:
    """An Arrow IPC stream of the peek's columns, and how many rows it holds."""

    data: bytes
    row_count: int


@dataclass(frozen=True)
class PeekStashed:
    """An answer too large for a message: its Arrow IPC stream of `size` bytes waits at the replica, to be fetched in
    pieces, until CancelPeek or until the client goes."""

    row_count: int
    size: int


@dataclass(frozen=True)
class PeekError:
    """`everywhere`: any replica would say the same, as the data or the question is to blame; else it may be this one's
    own failure. A replica that is older than this field tells none of its errors apart."""

    message: str
    is_deterministic: bool = False


@dataclass(frozen=True)
class PeekCanceled:
    """Only ever after a CancelPeek."""


@dataclass(frozen=True)
class PeekResponse:
    """Exactly one per Peek received."""

    uuid: str
    result: PeekRows | PeekStashed | PeekError | PeekCanceled


@dataclass(frozen=True)
class SubscribeBatch:
    """All updates of [lower, upper), consolidated, as an Arrow IPC stream; or the error that ends the subscribe.

    The stream has the columns `c0 ... cn-1, __time, __diff, __part`, in order of time and part. A part is a hash of the
    row: updates of one time that do not fit one message are divided by it. Then `upper_part` of one batch, and
    `lower_part` of the next, say how far in that time the former goes; bounds are compared as (frontier, part).
    """

    lower: Frontier
    upper: Frontier
    updates: bytes = b""
    error: str | None = None
    lower_part: int = 0
    upper_part: int = 0


@dataclass(frozen=True)
class SubscribeDropped:
    """The subscribe was dropped; `frontier` is the upper of the last batch."""

    frontier: Frontier


@dataclass(frozen=True)
class SubscribeResponse:
    id: GlobalId
    result: SubscribeBatch | SubscribeDropped


@dataclass(frozen=True)
class CopyToDone:
    row_count: int


@dataclass(frozen=True)
class CopyToFailed:
    message: str


@dataclass(frozen=True)
class CopyToDropped:
    pass


@dataclass(frozen=True)
class CopyToResponse:
    """Exactly one per copy-to created."""

    id: GlobalId
    result: CopyToDone | CopyToFailed | CopyToDropped


@dataclass(frozen=True)
class Status:
    """Introspection that nothing may depend on: kind `hydration`, `erroring`, `step_failed`, ..."""

    id: GlobalId
    kind: str
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardFrontiers:
    id: ShardId
    upper: Frontier
    since: Frontier


@dataclass(frozen=True)
class IngestionStatus:
    """`state`: running, waiting, fenced, failed; `message` says why, or what a running one noticed. Counters of files:
    `files`, `waiting_files`, `changed_files`, and since the ingester began `bad_files`."""

    id: GlobalId
    state: str
    message: str = ""
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardDeleted:
    """The answer to DeleteShard; `error` None when it is gone."""

    id: ShardId
    error: str | None = None


ComputeResponse = Frontiers | PeekResponse | SubscribeResponse | CopyToResponse | Status
StorageResponse = ShardFrontiers | IngestionStatus | ShardDeleted
Response = ComputeResponse | StorageResponse


@dataclass(frozen=True)
class DescribedDataflow:
    """`reads_from`: the earliest time that it still reads of its inputs; None where the replica does not tell."""

    export_ids: tuple[GlobalId, ...]
    digest: str
    as_of: Time
    reads_from: Frontier | None = None


@dataclass(frozen=True)
class DescribedCollection:
    id: GlobalId
    since: Frontier
    write: Frontier


@dataclass(frozen=True)
class DescribedShard:
    """`error`: the shard exists but cannot be read now; then the numbers are the last seen, or minimal. `owner`: the id
    that the table itself has, and `columns` its own, nullable; where a replica tells them."""

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
    """The answer to Describe: what a replica has, so that a controller chooses as_ofs without guessing; and what it
    `understands` of plans (plan/plan_features.py)."""

    incarnation: str
    epoch: Epoch | None
    hydrations: int
    dataflows: tuple[DescribedDataflow, ...]
    collections: tuple[DescribedCollection, ...]
    shards: tuple[DescribedShard, ...]
    plan_features: tuple[str, ...] = ()
