"""The rows of an append: read from staged files, compared with the shard, written beside it.

Memory holds one share at a time: a large correction is divided by a hash of the row, spilled to disk, and consolidated
share by share. Cost: a correction reads the staged snapshot and the persisted contents once and sorts nothing; a later
append reads only its own deltas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import (
    DIFF,
    TIME,
    FilePart,
    PersistError,
    Shard,
    StagedFile,
    Time,
    consolidate,
    read_part,
    write_staged,
)
from tidemark_persist.files.consolidate import advance
from tidemark_persist.files.spill import divide
from tidemark_persist.schema import SYSTEM_FIELDS
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.sink_progress import AppendAttempt, CompactionInput, Comparison
from tidemark_replica.sinks.table.refresh_times import RefreshTimes

SHARE_BYTES = 64 * 1024 * 1024
Table = Any


@dataclass(frozen=True)
class Rows:
    """The columns of an append's updates: the shard's user columns, and `__time`, `__diff`, `__error`."""

    schema: pa.Schema

    @staticmethod
    def of(shard: Shard) -> Rows:
        return Rows(pa.schema([*shard.schema, *SYSTEM_FIELDS]))

    def read(self, deltas: Iterable[SinkDelta]) -> Iterator[Table]:
        """Staged updates with the shard's column names."""
        for delta in deltas:
            yield from map(self.named, delta.batches())

    def named(self, batch: pa.RecordBatch) -> Table:
        """A batch of staged updates with the shard's column names."""
        return pa.Table.from_batches([batch]).rename_columns(self.schema.names).cast(self.schema)


def stage(shard: Shard, append: AppendAttempt, lost: Collection[str] = ()) -> list[StagedFile]:
    """Writes the updates of the append to files beside the shard; returns none where there are no updates. `lost`:
    files of the shard that a correction takes to be empty."""
    rows = Rows.of(shard)
    if not append.syncs:
        return []
    wanted = (moved(table, append) for table in rows.read(append.deltas))
    if append.correct and append.expected_upper > 0:
        return corrected(shard, rows, wanted, append, lost)
    return written(shard, rows, wanted, staged_bytes(append))


def staged_bytes(append: AppendAttempt | Comparison | CompactionInput) -> int:
    return sum(file.stat().st_size for delta in append.deltas for file in delta.files)


def moved(table: Table, append: AppendAttempt) -> Table:
    """The updates that are still to be written, at times that may still be written."""
    if append.refreshes is not None:
        return refreshed(table, append, append.refreshes)
    if not append.correct:
        time = table.column(TIME)
        wanted = pc.and_(pc.greater_equal(time, append.expected_upper), pc.less(time, append.new_upper))
        return table.filter(wanted)
    return advance(table, Time(append.no_earlier))


def refreshed(table: Table, append: AppendAttempt, refreshes: RefreshTimes) -> Table:
    """The updates at the refreshes before the new upper."""
    times = table.column(TIME).to_numpy()
    when = refreshes.round_up(np.maximum(times, append.no_earlier))
    return with_times(table, when).filter(pa.array((times >= append.written) & (when < append.new_upper)))


def compacted(table: Table, compaction: CompactionInput) -> Table:
    """The updates, with times before `compaction.at` moved to at most two times."""
    times = table.column(TIME).to_numpy()
    apart = min(compaction.apart, compaction.at)
    when = np.where(times <= apart, apart, np.maximum(times, compaction.at))
    return with_times(table, when).filter(pa.array(times >= compaction.written))


def with_times(table: Table, times: np.ndarray) -> Table:
    index = table.schema.get_field_index(TIME)
    return table.set_column(index, table.schema.field(index), pa.chunked_array([pa.array(times, pa.int64())]))


def corrected(
    shard: Shard, rows: Rows, wanted: Iterable[Table], append: AppendAttempt, lost: Collection[str]
) -> list[StagedFile]:
    """`wanted` minus the contents of the shard just before the expected upper."""
    with shard.lease():
        parts = [part for part in shard.snapshot_parts(append.expected_upper - 1) if part.path not in lost]
        size = sum(part.size for part in parts) + staged_bytes(append)
        return written(shard, rows, chain(wanted, persisted(rows, parts, append.first_time)), size)


def equal(shard: Shard, comparison: Comparison) -> bool:
    """Whether the shard's contents equal the staged ones. Raises NotReadable."""
    rows, at = Rows.of(shard), comparison.at
    with shard.lease():
        parts = shard.snapshot_parts(comparison.read_at)
        size = sum(part.size for part in parts) + staged_bytes(comparison)
        until = (t.filter(pc.less_equal(t.column(TIME), at)) for t in rows.read(comparison.deltas))
        wanted = (advance(table, Time(at)) for table in until)
        shares = consolidated(rows, chain(wanted, persisted(rows, parts, at)), size)
        return all(table.num_rows == 0 for table in shares)


def persisted(rows: Rows, parts: Iterable[FilePart], time: int) -> Iterator[Table]:
    """The rows of the parts, negated, at `time`."""
    for part in parts:
        for batch in read_part(part):
            yield negated(pa.Table.from_batches([batch]), time).select(rows.schema.names)


def negated(table: Table, time: int) -> Table:
    index = table.schema.get_field_index(DIFF)
    negative = table.set_column(index, table.schema.field(index), pc.negate_checked(table.column(DIFF)))
    return with_times(negative, np.full(table.num_rows, time, np.int64))


def written(shard: Shard, rows: Rows, tables: Iterable[Table], size: int) -> list[StagedFile]:
    """Writes the consolidated tables to files beside the shard; removes them where not all can be written."""
    files: list[StagedFile] = []
    try:
        for table in consolidated(rows, tables, size):
            file = write_staged(shard.location, table, schema=shard.schema)
            files += [] if file is None else [file]
    except BaseException:
        discard_staged(shard, files)
        raise
    return files


def discard_staged(shard: Shard, files: Sequence[StagedFile]) -> None:
    """Removes files that certainly will not be appended, as far as the store allows; vacuum removes the rest a day
    later."""
    if files:
        with suppress(PersistError, OSError):
            shard.discard(files)


def consolidated(rows: Rows, tables: Iterable[Table], size: int, folder: Path | None = None) -> Iterator[Table]:
    """Consolidates share by share; equal rows are in one share. `size`: approximate bytes of the tables. Shares wait on
    disk below `folder`, by default the process's spill folder."""
    for share in divide(tables, rows.schema, 1 + size // SHARE_BYTES, folder=folder):
        pieces = list(share)
        if pieces:
            yield consolidate(pa.concat_tables(pieces))
