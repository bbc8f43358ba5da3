"""Lookups that wait at the same time, of one index at one time, are one probe of the index for all their keys.

    k = 7 ──┐                                ┌──► rows of 7
    k = 9 ──┼──► rows of 7 and 9, one read ──┼──► rows of 9
    k = 7 ──┘          rows by hash of key   └──► rows of 7

What a lookup costs is the number of calls into NumPy and Arrow, which hardly depends on the number of keys. A lookup
waits for no later one: the first that a thread takes reads for all that wait then.

Lookups are read one by one where the answer is no slice of the rows: with an order or a limit, with errors, with rows
of a negative multiplicity, where keys share a hash, or where the rows are many.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from tidemark_replica.peek.collection_reader import check_fits, key_columns, schema_of
from tidemark_replica.peek.peek_reader import ANSWER_BYTES_MAX, Limits
from tidemark_replica.peek.result_stash import StashedResult
from tidemark_replica.render.expressions.mfp import projection_of
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.values.arrow_types import arrow_schema

LOG = logging.getLogger(__name__)
Answer = PeekRows | StashedResult
Stopped = Callable[[], bool]
ReadOne = Callable[[Peek, Limits, Stopped], Answer]
ReadTogether = Callable[[Sequence[Peek], Limits], Sequence[PeekRows] | None]
LOOKUPS_MAX, ROWS_MAX, READ_BYTES_MAX = 64, 4096, 8 * 1024 * 1024
"""The limits of one read. The bytes are those of rows of average width."""
ENVELOPE_BYTES = 16 * 1024
"""The bytes of Arrow's stream format, beside the rows."""
LOOKED_AT_MAX = 256
"""Lookups that are compared with the first one of a read."""


@dataclass
class WaitingLookup:
    """A lookup until it is read. `taken`: a thread reads it, or has read it; `answer`: None where it must be read by
    itself."""

    peek: Peek
    limits: Limits
    stopped: Stopped
    taken: bool = False
    answer: PeekRows | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class LookupBatches:
    """The lookups that wait. `add` and `forget` are called on the command loop, `read` on the pool of lookups."""

    def __init__(self, read_one: ReadOne, read_together: ReadTogether) -> None:
        self._read_one, self._read_together = read_one, read_together
        self._waiting: dict[tuple[GlobalId, Time], dict[str, WaitingLookup]] = {}
        self._lock = threading.Lock()

    def add(self, peek: Peek, limits: Limits, stopped: Stopped) -> WaitingLookup:
        lookup = WaitingLookup(peek, limits, stopped)
        with self._lock:
            self._waiting.setdefault(_place(peek), {})[peek.uuid] = lookup
        return lookup

    def forget(self, peek: Peek) -> None:
        """The peek was answered or dropped."""
        with self._lock:
            self._remove(peek)

    def read(self, lookup: WaitingLookup) -> Answer:
        """The answer. Raises what reading one raises."""
        batch = self._take(lookup)
        if batch is None:
            lookup.ended.wait()
        elif _is_plain(lookup.peek.finishing):
            try:
                self._answer(batch)
            finally:
                for each in batch:
                    each.ended.set()
        return lookup.answer or self._read_one(lookup.peek, lookup.limits, lookup.stopped)

    def _take(self, lookup: WaitingLookup) -> list[WaitingLookup] | None:
        """The lookups to read with this one, which is the first; None: another thread reads it."""
        with self._lock:
            if lookup.taken:
                return None
            batch = [lookup]
            if _is_plain(lookup.peek.finishing):
                waiting = islice(self._waiting.get(_place(lookup.peek), {}).values(), LOOKED_AT_MAX)
                others = (each for each in waiting if each is not lookup and _are_alike(lookup, each))
                batch += islice(others, LOOKUPS_MAX - 1)
            for each in batch:
                each.taken = True
                self._remove(each.peek)
            return batch

    def _remove(self, peek: Peek) -> None:
        waiting = self._waiting.get(_place(peek), {})
        waiting.pop(peek.uuid, None)
        if not waiting:
            self._waiting.pop(_place(peek), None)

    def _answer(self, batch: Sequence[WaitingLookup]) -> None:
        """Without an answer each is read by itself, and its failure is its own."""
        try:
            answers = self._read_together([each.peek for each in batch], batch[0].limits)
        except Exception:
            LOG.debug("%d lookups were not read together", len(batch), exc_info=True)
            return
        for each, answer in zip(batch, answers or (), strict=False):
            each.answer = answer


def _place(peek: Peek) -> tuple[GlobalId, Time]:
    return peek.target.id, peek.timestamp


def _is_plain(finishing: Finishing) -> bool:
    return not finishing.order and finishing.limit is None and not finishing.offset


def _are_alike(lookup: WaitingLookup, other: WaitingLookup) -> bool:
    """Whether the two differ in their keys alone."""
    here, there = lookup.peek, other.peek
    alike = (here.mfp, here.finishing, here.columns) == (there.mfp, there.finishing, there.columns)
    return alike and (here.skip_errors, lookup.limits) == (there.skip_errors, other.limits)


class LookupReader:
    """Reads lookups together. Called on a pool."""

    def __init__(self, find: Callable[[GlobalId], IndexTrace | None], batches: BatchCache) -> None:
        self._find, self._batches = find, batches

    def __call__(self, peeks: Sequence[Peek], limits: Limits) -> list[PeekRows] | None:
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
            if len(np.unique(hashes)) < len(keys) or _reads_much(trace, Keys.of(literals, len(keys))):
                return None
            found = trace.lookup(literals, first.timestamp)
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


def _largest(limits: Limits) -> int:
    """Bytes of the largest answer that is neither refused nor stashed."""
    return min(limits.max_bytes, ANSWER_BYTES_MAX if limits.spill_above is None else limits.spill_above)


def _answers(rows: Any, counts: Any, hashes: Hashes, wanted: Sequence[Sequence[np.uint64]]) -> list[PeekRows]:
    """The rows of each lookup. `hashes`: of the rows' keys; `wanted`: those of each lookup."""
    by_hash = order_by_hash(hashes)
    order = np.repeat(by_hash, counts[by_hash])
    rows, hashes = rows.take(pa.array(order)), hashes[order]
    answers: dict[tuple[np.uint64, ...], PeekRows] = {}
    for asked in map(tuple, wanted):
        if asked not in answers:
            ranges = [np.searchsorted(hashes, key, side) for key in asked for side in ("left", "right")]
            slices = [rows.slice(low, high - low) for low, high in zip(ranges[::2], ranges[1::2], strict=True)]
            answers[asked] = _answer_of(rows.schema, slices)
    return [answers[tuple(asked)] for asked in wanted]


def _answer_of(schema: pa.Schema, batches: Sequence[Any]) -> PeekRows:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            if batch.num_rows:
                writer.write_batch(batch)
    return PeekRows(sink.getvalue().to_pybytes(), sum(batch.num_rows for batch in batches))
