"""Lookups that wait at the same time, of one index at one time, are one probe of the index for all their keys.

    k = 7 ──┐                                ┌──► rows of 7
    k = 9 ──┼──► rows of 7 and 9, one read ──┼──► rows of 9
    k = 7 ──┘          rows by hash of key   └──► rows of 7

What a lookup costs is the number of calls into NumPy and Arrow, which hardly depends on the number of keys. A read has
those that came while the one before it was under way, and those that have come and wait for the command loop: a frame
of the operator has many. None waits for one that has not come.

Lookups are read one by one where the answer is no slice of the rows: with an order or a limit, with errors, with rows
of a negative multiplicity, where keys share a hash, or where the rows are many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import PeekRows
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.rows.grouping import order_by_hash
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.updates import Hashes, diffs, row_columns
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.events.jobs import Done, Job, Outcome, Pool
from tidemark_replica.peek.collection_reader import check_fits, key_columns, schema_of
from tidemark_replica.peek.peek_reader import ANSWER_BYTES_MAX, AnswerLimits
from tidemark_replica.peek.result_stash import StashedResult
from tidemark_replica.render.expressions.mfp import projection_of
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.values.arrow_types import arrow_schema

_Place = tuple[GlobalId, Time]
Answer = PeekRows | StashedResult
Stopped = Callable[[], bool]
ReadOne = Callable[[Peek, AnswerLimits, Stopped], Answer]
ReadTogether = Callable[[Sequence[Peek], AnswerLimits], Sequence[PeekRows] | None]
LOOKUPS_MAX, ROWS_MAX, READ_BYTES_MAX = 64, 4096, 8 * 1024 * 1024
"""The limits of one read. The bytes are those of rows of average width."""
ENVELOPE_BYTES = 16 * 1024
"""The bytes of Arrow's stream format, beside the rows."""
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
LOOKED_AT_MAX = 256
"""Lookups that are compared with the first one of a read."""


@dataclass
class _Lookup:
    """A lookup until it is read. `done` is called with its answer or its failure."""

    peek: Peek
    limits: AnswerLimits
    stopped: Stopped
    done: Callable[[Outcome[Answer]], None]
    job: Job


class LookupBatches:
    """The lookups that wait, and their reads. Called on the command loop.

    For each index and time one read together runs at a time. Lookups that come meanwhile are the next read, so a busy
    replica reads more of them at once.
    """

    def __init__(
        self, jobs: Pool, read_one: ReadOne, read_together: ReadTogether, later: Callable[[Callable[[], None]], None]
    ) -> None:
        """`later`: calls a function once the events that wait now are handled."""
        self._jobs, self._read_one, self._read_together, self._later = jobs, read_one, read_together, later
        self._waiting: dict[_Place, dict[str, _Lookup]] = {}
        """The lookups of each place that has a read under way, or begins one."""

    def read(self, peek: Peek, limits: AnswerLimits, stopped: Stopped, done: Callable[[Outcome[Answer]], None]) -> Job:
        """Starts to read. The failure is what reading one raises."""
        lookup = _Lookup(peek, limits, stopped, done, Job(f"peek {peek.uuid}"))
        if not _is_plain(peek.finishing):
            self._read_alone(lookup)
        elif (waiting := self._waiting.get(_batch_key(peek))) is not None:
            waiting[peek.uuid] = lookup
        else:
            self._waiting[place := _batch_key(peek)] = {peek.uuid: lookup}
            self._later(lambda: self._read_next(place))
        return lookup.job

    def forget(self, peek: Peek) -> None:
        """The peek was answered or dropped."""
        self._waiting.get(_batch_key(peek), {}).pop(peek.uuid, None)

    def _read_batch(self, batch: Sequence[_Lookup]) -> None:
        peeks = [each.peek for each in batch]
        name = f"{len(batch)} lookups of {peeks[0].target.id}"
        self._jobs.submit(
            name, lambda: self._read_together(peeks, batch[0].limits), lambda end: self._end_batch(batch, end)
        )

    def _end_batch(self, batch: Sequence[_Lookup], end: Outcome[Sequence[PeekRows] | None]) -> None:
        """End the batch. Without an answer each peek is read by itself, and its failure is its own."""
        try:
            if isinstance(end, Done) and end.value is not None:
                for each, answer in zip(batch, end.value, strict=True):
                    each.done(Done(answer))
            else:
                for each in batch:
                    self._read_alone(each)
        finally:
            self._later(lambda: self._read_next(_batch_key(batch[0].peek)))

    def _read_next(self, place: _Place) -> None:
        waiting = self._waiting[place]
        if not waiting:
            del self._waiting[place]
            return
        first = next(iter(waiting.values()))
        alike = (each for each in islice(waiting.values(), LOOKED_AT_MAX) if _are_alike(first, each))
        batch = list(islice(alike, LOOKUPS_MAX))
        for each in batch:
            del waiting[each.peek.uuid]
        self._read_batch(batch)

    def _read_alone(self, lookup: _Lookup) -> None:
        if not lookup.job.cancelled:
            read = lambda: self._read_one(lookup.peek, lookup.limits, lookup.stopped)  # noqa: E731
            self._jobs.submit(lookup.job.name, read, lookup.done)


def _batch_key(peek: Peek) -> _Place:
    """The collection and the time that a peek reads: peeks that are equal in it are answered by one read."""
    return peek.target.id, peek.timestamp


def _is_plain(finishing: Finishing) -> bool:
    return not finishing.order and finishing.limit is None and not finishing.offset


def _are_alike(lookup: _Lookup, other: _Lookup) -> bool:
    """Whether the two differ in their keys alone."""
    here, there = lookup.peek, other.peek
    alike = (here.mfp, here.finishing, here.columns) == (there.mfp, there.finishing, there.columns)
    return alike and (here.skip_errors, lookup.limits) == (there.skip_errors, other.limits)


class LookupReader:
    """Reads lookups together. Called on a pool."""

    def __init__(self, find: Callable[[GlobalId], IndexTrace | None], batches: BatchCache) -> None:
        self._find, self._batches = find, batches

    def __call__(self, peeks: Sequence[Peek], limits: AnswerLimits) -> list[PeekRows] | None:
        """The answers of lookups that differ in their keys alone; None where they must be read one by one. Raises
        OutOfFrontier, PlanNotAllowed."""
        index, first = self._find(peeks[0].target.id), peeks[0]
        columns, shown = projection_of(first.mfp), first.finishing.shown
        if index is None or not columns or (shown is not None and shown < 1):
            return None  # a batch without columns has no number of rows
        check_fits(schema_of(index.columns), first)
        keys = list(dict.fromkeys(key for peek in peeks for key in peek.literals or ()))
        with index.store.pin(index.arrangement) as pinned:
            manifest = pinned[index.arrangement]
            trace = Trace(manifest, self._batches)
            if trace.errors_at(first.timestamp).num_rows:
                return None
            literals = key_columns(manifest.layout, keys)
            hashes = key_hashes(literals, len(keys))
            wanted = Keys.of(literals, len(keys))
            if len(np.unique(hashes)) < len(keys) or _reads_much(trace, wanted):
                return None
            found = trace.lookup_keys(wanted, first.timestamp)
            counts, row = diffs(found), row_columns(found)
            if (counts < 0).any() or counts.sum(dtype=np.float64) > ROWS_MAX:
                return None
            by_key = key_hashes([row[k] for k in manifest.layout.key], found.num_rows)
        schema = arrow_schema(first.columns[:shown])
        cast = [row[c].cast(t) for c, t in zip(columns, schema.types, strict=False)]
        rows = pa.RecordBatch.from_arrays(cast, schema=schema)
        if rows.nbytes * int(counts.max(initial=1)) + ENVELOPE_BYTES > _largest(limits):
            return None
        of = dict(zip(keys, hashes, strict=True))
        return _answers(
            rows, counts, by_key, [[of[key] for key in dict.fromkeys(peek.literals or ())] for peek in peeks]
        )


def _reads_much(trace: Trace, keys: Keys) -> bool:
    rows = int(trace.sizes(keys).sum())
    width = max((segment.bytes / max(len(segment.hashes), 1) for segment in trace.combined_segments()), default=0.0)
    return rows > ROWS_MAX or rows * width > READ_BYTES_MAX


def _largest(limits: AnswerLimits) -> int:
    """Bytes of the largest answer that is neither refused nor stashed."""
    return min(limits.max_bytes, ANSWER_BYTES_MAX if limits.spill_above is None else limits.spill_above)


def _answers(rows: Any, counts: Any, hashes: Hashes, wanted: Sequence[Sequence[np.uint64]]) -> list[PeekRows]:
    """The rows of each lookup. `hashes`: of the rows' keys; `wanted`: those of each lookup."""
    by_hash = order_by_hash(hashes)
    order = np.repeat(by_hash, counts[by_hash])
    rows, hashes = rows.take(pa.array(order)), hashes[order]
    distinct = np.array(list(dict.fromkeys(key for asked in wanted for key in asked)), hashes.dtype)
    ends = zip(hashes.searchsorted(distinct).tolist(), hashes.searchsorted(distinct, "right").tolist(), strict=True)
    of = {key: rows.slice(low, high - low) for key, (low, high) in zip(distinct.tolist(), ends, strict=True)}
    schema = rows.schema.serialize()
    answers: dict[tuple[np.uint64, ...], PeekRows] = {}
    for asked in map(tuple, wanted):
        if asked not in answers:
            answers[asked] = _answer_of(schema, [of[int(key)] for key in asked])
    return [answers[tuple(asked)] for asked in wanted]


def _answer_of(schema: Any, batches: Sequence[Any]) -> PeekRows:
    """The rows as a stream of Arrow's. `schema`: its first message, which is that of all answers."""
    some = [batch for batch in batches if batch.num_rows]
    data = b"".join((schema, *(batch.serialize() for batch in some), _END_OF_STREAM))
    return PeekRows(data, sum(batch.num_rows for batch in some))
