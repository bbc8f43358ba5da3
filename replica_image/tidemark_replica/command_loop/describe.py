"""The call Describe: installed dataflows (from the command loop), supported plan features, and the frontiers of shards
(read here, in parallel).

A shard that cannot be read within SHARD_SECONDS is described as unreadable. No shard delays another, or the answer by
more than twice that time. Describing a shard does not follow it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from tidemark_protocol.ids import Epoch, ShardId
from tidemark_protocol.messages.responses import DescribedCollection, DescribedDataflow, DescribedShard, Description
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES
from tidemark_replica.events.mailbox import Mailbox
from tidemark_replica.shards.shards import ShardHandles, unreadable, with_owner
from tidemark_replica.values.failure_text import public_text

WORKER_SECONDS = 10.0
SHARD_SECONDS = 5.0
THREADS = 16
SHARDS_MAX = 10_000

ShardLocation = tuple[ShardId, str]
"""The id and the location of a shard."""
InstalledSummary = tuple[int, tuple[DescribedDataflow, ...], tuple[DescribedCollection, ...]]


class Describer:
    """Answers on the server's threads; `installed` runs on the command loop."""

    def __init__(
        self,
        mailbox: Mailbox,
        handles: ShardHandles,
        epoch: Callable[[], Epoch | None],
        installed: Callable[[], InstalledSummary],
    ) -> None:
        self.incarnation = uuid.uuid4().hex
        self._mailbox, self._handles, self._epoch, self._installed = mailbox, handles, epoch, installed
        self._shards = ShardDescriptions(handles.describe)

    def __call__(self, request: pb.DescribeRequest) -> Description:
        """Raises TimeoutError where the command loop does not answer, ValueError for too many shards."""
        if len(request.shards) > SHARDS_MAX:
            raise ValueError(f"the request names {len(request.shards)} shards; the limit is {SHARDS_MAX}")
        locations = {ShardId(s.id): s.location for s in request.shards}
        pending = {id: self._shards.pending_description((id, location)) for id, location in locations.items()}
        hydrations, dataflows, collections = self._ask()
        _wait(pending.values())
        shards = tuple(_outcome(id, read.result) for id, read in pending.items())
        if not request.frontiers_alone:
            shards = tuple(self._with_owner(shard, locations[shard.id]) for shard in shards)
        return Description(
            self.incarnation, self._epoch(), hydrations, dataflows, collections, shards, SUPPORTED_FEATURES
        )

    def _ask(self) -> InstalledSummary:
        answer: Future[InstalledSummary] = Future()
        self._mailbox.call(lambda: answer.set_result(self._installed()))
        try:
            return answer.result(WORKER_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"the replica's command loop did not answer within {WORKER_SECONDS:.0f} s") from None

    def _with_owner(self, shard: DescribedShard, location: str) -> DescribedShard:
        """The description with owner and columns, which are in memory."""
        reader = self._handles.cached_reader(location)
        return with_owner(reader, shard) if reader is not None and shard.exists else shard


@dataclass
class PendingDescription:
    """A description that was asked for: the monotonic time at which its read began, and its future."""

    began: float | None = None
    result: Future[DescribedShard] = field(default_factory=Future)


class ShardDescriptions:
    """Reads of shards, at most one per shard at a time, so that a read that hangs is not started again. A caller during
    a read gets the next one, since the present one may have read the table before the call."""

    def __init__(self, read: Callable[[ShardId, str], DescribedShard]) -> None:
        self._read, self._lock = read, threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="describe")
        self._running: set[ShardLocation] = set()
        self._next: dict[ShardLocation, PendingDescription] = {}

    def pending_description(self, shard: ShardLocation) -> PendingDescription:
        """A description of the shard whose read begins after this call."""
        with self._lock:
            if shard not in self._running:
                self._running.add(shard)
                self._pool.submit(self._begin, shard)
            return self._next.setdefault(shard, PendingDescription())

    def _begin(self, shard: ShardLocation) -> None:
        with self._lock:
            read = self._next.pop(shard)
        read.began = time.monotonic()
        try:
            read.result.set_result(self._read(*shard))
        except BaseException as error:  # a Rust panic is no Exception; the next read must still start
            read.result.set_exception(error)
        with self._lock:
            if shard in self._next:
                self._pool.submit(self._begin, shard)
            else:
                self._running.discard(shard)


def _wait(pending: Collection[PendingDescription]) -> None:
    """Waits SHARD_SECONDS. A read that began during the wait gets as long from its own start."""
    wait([read.result for read in pending], SHARD_SECONDS)
    begun = {read.result: read.began for read in pending if read.began is not None and not read.result.done()}
    if begun:
        wait(begun, max(0.0, max(begun.values()) + SHARD_SECONDS - time.monotonic()))


def _outcome(id: ShardId, read: Future[DescribedShard]) -> DescribedShard:
    if not read.done():
        return unreadable(id, f"the shard was not read within {SHARD_SECONDS:.0f} s")
    error = read.exception()
    return unreadable(id, public_text(error)) if error is not None else read.result()
