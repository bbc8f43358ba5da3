"""The changes of a view, time by time, at times at which its keys are unique.

    updates of (reached, time] ──net of each time──► NetChanges of t1, t2, ...     each is sent as one transaction

A time at which the view has rows in error has no right contents: its changes are those of the next time without any.
So it is with a time at which a key has several rows. A key is unique if the number of its rows is 0 or 1. Changes alone
do not tell of a key that only comes, so the keys that begin so are looked up in the shard as of the time that was
reached (the row groups that may have them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, TIME, FilePart, ShardReader, consolidate, read_part
from tidemark_persist.schema import SYSTEM_FIELDS
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.kafka.envelopes import Envelope
from tidemark_replica.sinks.table.shard_updates import with_times
from tidemark_replica.storage.keyed_rows.scan import Sought

ROWS_MAX, BYTES_MAX = 1_000_000, 256 << 20
"""Updates of one time, and the bytes of the files of the times that are read together."""
MEMORY_BYTES_MAX = 512 << 20
"""Bytes of the updates in memory, before they are encoded."""
_NEVER = int(np.iinfo(np.int64).max)


class TooManyUpdates(Exception):
    """The times have more updates than are held in memory."""


@dataclass(frozen=True)
class NetChanges:
    """Net changes of rows with `__time`, in the order of times. `upper`: the time after the last one that was read.
    `good`: the last time without errors, with unique keys, that was read. `in_error`: the view has rows in error after
    it. `not_unique`: the time from which on keys have several rows, up to the last one that was read."""

    rows: pa.Table
    upper: Time
    good: Time
    in_error: bool
    not_unique: Time | None = None

    @property
    def is_held(self) -> bool:
        """Whether the last times that were read have no right contents."""
        return self.in_error or self.not_unique is not None

    def by_time(self) -> Iterator[tuple[Time, pa.Table]]:
        """The changes of each time that has any, without `__time`."""
        times = self.rows.column(TIME).to_numpy()
        begins = np.flatnonzero(np.diff(times, prepend=-1))
        for begin, end in pairwise([*begins, len(times)]):
            yield Time(int(times[begin])), self.rows.slice(begin, end - begin).drop_columns([TIME])


def read_changes(shard: ShardReader, parts: Sequence[FilePart], upper: Time) -> NetChanges:
    """The changes in the parts, all before `upper`; the view had no errors before them. Raises TooManyUpdates."""
    schema = pa.schema([*shard.schema, *SYSTEM_FIELDS])
    batches, rows, size = [], 0, 0
    for part in parts:
        for batch in read_part(part, columns=schema.names):
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > ROWS_MAX or size > MEMORY_BYTES_MAX:
                raise TooManyUpdates
            batches.append(batch)
    updates = pa.Table.from_batches([], schema) if not batches else pa.Table.from_batches(batches).cast(schema)
    is_error = pc.is_valid(updates.column(ERROR))
    sound, in_error = updates.filter(pc.invert(is_error)).drop_columns([ERROR]), False
    good = Time(upper - 1)
    if pc.any(is_error).as_py():
        sound, good, in_error = _without_errors(sound, updates.filter(is_error), good)
    net = consolidate(sound)
    return NetChanges(net.sort_by(TIME), upper, good, in_error)


def _without_errors(rows: pa.Table, errors: pa.Table, last: Time) -> tuple[pa.Table, Time, bool]:
    """The rows at times without errors: those of other times at the next such time, or not at all. The last such time,
    and whether errors stand after it."""
    standing, begins, ends = Counter[str](), list[int](), list[int]()
    net = consolidate(errors.select([TIME, DIFF, ERROR])).sort_by(TIME)
    by_time = groupby(zip(*(net.column(name).to_pylist() for name in (TIME, ERROR, DIFF)), strict=True), itemgetter(0))
    for time, updates in by_time:
        was = bool(standing)
        for _, text, diff in updates:
            standing[text] += diff
        standing = Counter({text: count for text, count in standing.items() if count})
        if bool(standing) != was:
            (ends if was else begins).append(time)
    if len(ends) < len(begins):
        rows = rows.filter(pc.less(rows.column(TIME), begins[-1]))
        last = Time(begins[-1] - 1)
    return _moved(rows, zip(begins, ends, strict=False)), last, len(ends) < len(begins)


def _moved(rows: pa.Table, spans: Iterable[tuple[int, int]]) -> pa.Table:
    """The changes; those with a time in a span, from its begin to before its end, are moved to its end."""
    found = rows.column(TIME).to_numpy().copy()
    for begin, end in spans:
        found[(found >= begin) & (found < end)] = end
    return with_times(rows, found)


def at_unique_times(shard: ShardReader, reached: Time, changes: NetChanges, envelope: Envelope) -> NetChanges:
    """The changes with those of times at which a key has several rows at the next time at which none has, or left out.
    Keys are unique at `reached`."""
    rows = changes.rows
    if not rows.num_rows:
        return changes
    spans = _spans(*_row_counts(shard, reached, rows, envelope))
    if not spans:
        return changes
    moved = _moved(rows, spans)
    begin, end = spans[-1]
    good, not_unique = changes.good, None
    if end == _NEVER:
        good, not_unique = Time(begin - 1), Time(begin)
        moved = moved.filter(pc.less(moved.column(TIME), begin))
    return replace(changes, rows=consolidate(moved).sort_by(TIME), good=good, not_unique=not_unique)


def _spans(codes: np.ndarray, times: np.ndarray, counts: np.ndarray) -> list[tuple[int, int]]:
    """The times, from the first up to before the second, at which any key has several rows, in order, with a time
    between two of them. The arguments: keys, in order, and within a key the times at which its rows change, and how
    many it has then."""
    wrong = np.flatnonzero((counts < 0) | (counts > 1))
    following = np.append(times[1:], _NEVER)
    following[np.append(np.diff(codes) != 0, True)] = _NEVER
    spans: list[tuple[int, int]] = []
    for begin, end in sorted(zip(times[wrong].tolist(), following[wrong].tolist(), strict=True)):
        if spans and begin <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((begin, end))
    return spans


def _row_counts(
    shard: ShardReader, reached: Time, rows: pa.Table, envelope: Envelope
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Key by key the times at which its rows change, and how many it has from then on."""
    keys = envelope.keys(rows).dictionary_encode()
    codes = keys.indices.to_numpy().astype(np.int64)
    times, diffs = (rows.column(name).to_numpy() for name in (TIME, DIFF))
    order = np.lexsort((times, codes))
    codes, times, diffs = codes[order], times[order], diffs[order]
    group = np.flatnonzero((np.diff(codes, prepend=-1) != 0) | (np.diff(times, prepend=-1) != 0))
    added, taken = np.add.reduceat(np.maximum(diffs, 0), group), np.add.reduceat(np.minimum(diffs, 0), group)
    codes, times = codes[group], times[group]
    first = np.diff(codes, prepend=-1) != 0
    begins = np.flatnonzero(first)
    # a key that loses a row had one before; the shard tells of a key that only gets a row
    initial = np.where(taken[first] < 0, 1, 0)
    unknown = np.flatnonzero(taken[first] == 0)
    if len(unknown):
        of_unknown = np.zeros(len(begins), bool)
        of_unknown[unknown] = True
        sought = rows.filter(pa.array(of_unknown[keys.indices.to_numpy()]))
        there = _counts(shard, reached, sought, envelope, keys.dictionary)
        initial[unknown] = there[codes[begins[unknown]]]
    net = added + taken
    running = np.cumsum(net)
    base = np.repeat(running[begins] - net[begins], np.diff([*begins, len(net)]))
    count = running - base + np.repeat(initial, np.diff([*begins, len(net)]))
    return codes, times, count


def _counts(shard: ShardReader, at: Time, sought: pa.Table, envelope: Envelope, keys: pa.Array) -> np.ndarray:
    """The number of rows of each of the keys in the shard at a time; of those that are not sought, anything."""
    names = list(envelope.key)
    wanted = Sought(sought.select(names).to_batches(), names)
    counts = np.zeros(len(keys), np.int64)
    for part in shard.snapshot_parts(at):
        for batch in read_part(part, columns=[*names, DIFF, ERROR], conditions=wanted.conditions()):
            found = wanted.among(pa.Table.from_batches([batch]).filter(pc.is_null(batch.column(ERROR))))
            if found.num_rows:
                codes = pc.index_in(envelope.keys(found), value_set=keys)
                known = codes.is_valid()
                diffs = found.column(DIFF).filter(known).to_numpy()
                np.add.at(counts, codes.filter(known).to_numpy(), diffs)
    return counts
