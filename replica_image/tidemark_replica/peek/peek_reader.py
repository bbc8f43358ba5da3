"""Reads peeks from an index or a shard into an Arrow IPC stream.

batches ──finished──► ResultSpool ──► PeekRows, where they fit in a message
                        └────► StashedResult
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark_persist import ShardReader, open_shard
from tidemark_protocol import tracing
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import Peek, ShardTarget
from tidemark_protocol.messages.responses import PeekRows
from tidemark_protocol.wire.frames import MAX_MESSAGE_BYTES
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.errors import ReplicaError
from tidemark_replica.events.jobs import JobCancelled
from tidemark_replica.peek.collection_reader import ReadContext, SkippedErrors, read_index, read_shard
from tidemark_replica.peek.result_finishing import finished_batches
from tidemark_replica.peek.result_stash import ResultSpool, ResultStash, StashedResult
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.values.arrow_types import arrow_schema

ANSWER_BYTES_MAX = MAX_MESSAGE_BYTES - 1024 * 1024
"""The largest answer in one message: the rest is for the envelope and for Arrow's stream format."""


@dataclass(frozen=True)
class AnswerLimits:
    """Bytes. `max_bytes`: the largest answer; `stash_above`: the largest answer that is sent as a message, if there is
    a stash."""

    max_bytes: int
    stash_above: int | None = None

    @property
    def spill_above(self) -> int | None:
        return None if self.stash_above is None else min(self.stash_above, ANSWER_BYTES_MAX)


class PeekReader:
    """The reader of peeks, which pools call. Only peeks that need a Spark job start the session."""

    def __init__(
        self,
        session: Callable[[], Any],
        find: Callable[[GlobalId], IndexTrace | None],
        batches: BatchCache,
        stash: ResultStash,
        *,
        open_shard: Callable[[str], ShardReader] = open_shard,
        note_failed_read: Callable[[str, Exception], None] = lambda location, error: None,
        arrow: bool = True,
    ) -> None:
        """`note_failed_read`: called with the location of a shard and the error of reading it."""
        self._session, self._find, self._batches, self._arrow = session, find, batches, arrow
        self._open_shard, self._note_failed_read = open_shard, note_failed_read
        self._stash = stash

    def __call__(self, peek: Peek, limits: AnswerLimits, stopped: Callable[[], bool]) -> PeekRows | StashedResult:
        """The finished answer. Raises what `collection_reader` raises, ReplicaError for an index that does not exist,
        StashFull, OSError, and JobCancelled where the peek was dropped."""
        with tracing.span("read", peek.trace_context or None):
            try:
                return self._read(peek, limits, stopped)
            except Exception as error:
                if isinstance(peek.target, ShardTarget):
                    self._note_failed_read(peek.target.shard.location, error)
                raise

    def _read(self, peek: Peek, limits: AnswerLimits, stopped: Callable[[], bool]) -> PeekRows | StashedResult:
        most = limits.max_bytes if limits.stash_above is not None else min(limits.max_bytes, ANSWER_BYTES_MAX)
        spool, skipped = ResultSpool(self._stash, limits.spill_above), SkippedErrors()
        with ExitStack() as on_failure:
            on_failure.callback(spool.close)
            with closing(self._batches_of(peek, most, skipped, stopped)) as batches:
                rows = _written(spool, peek, batches, stopped)
            if spool.on_disk:
                spool.flush()
                on_failure.pop_all()
                return StashedResult(spool, rows, skipped.count)
            return PeekRows(spool.in_memory(), rows, skipped.count)

    def _batches_of(
        self, peek: Peek, max_bytes: int, skipped: SkippedErrors, stopped: Callable[[], bool]
    ) -> Generator[Any, None, None]:
        """Holds the target until the iteration ends or is closed."""
        reading = ReadContext(self._session, max_bytes, self._batches, self._arrow, skipped, stopped, self._open_shard)
        if isinstance(peek.target, ShardTarget):
            return read_shard(reading, peek.target.shard, peek)
        index = self._find(peek.target.id)
        if index is None:
            raise ReplicaError(f"this replica has no index {peek.target.id}; if it was just created, ask again")
        return read_index(reading, index, peek)


def _written(spool: ResultSpool, peek: Peek, batches: Iterator[Any], stopped: Callable[[], bool]) -> int:
    """Writes the finished rows; returns their number."""
    schema, rows = arrow_schema(peek.columns[: peek.finishing.shown]), 0
    with pa.ipc.new_stream(spool, schema) as writer:
        for batch in finished_batches(batches, arrow_schema(peek.columns), peek.finishing):
            if stopped():
                raise JobCancelled(f"peek {peek.uuid}")
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
