"""The contents of a shard at a time, one piece after the other: memory follows the retractions, not the rows.

    files          +a +b     +c +d -b     +d +e -x
    exceptions     -b -x                                first: only row groups that may have retractions or errors
    rows           a         c  d         d  e          then all: an insertion is live unless a retraction takes it
    at the end     -x                                   a retraction that took nothing: a negative multiplicity

A piece is live for certain when it comes, so a reader that has enough rows stops. A row may come several times, each
time with a part of its multiplicity. Where the retractions exceed RETRACTED_BYTES, all updates are divided by a hash of
the row instead (`spill.py`), and consolidated share by share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist.files.consolidate import consolidate, consolidate_stream
from tidemark_persist.files.file_parts import FilePart, Sieve, read_part
from tidemark_persist.files.pruning import Condition, RowGroupTest, every_group, may_have_exceptions
from tidemark_persist.files.spill import divide
from tidemark_persist.schema import DIFF, ERROR, TIME
from tidemark_persist.storage.mounted_settings import Options

RETRACTED_BYTES = 16 * 1024 * 1024
BATCH_ROWS = 16_384
PENDING_ROWS = 65_536
SHARE_ROWS = 131_072
SHARES_MAX = 256
READ_BYTES = 1
"""One row group is requested at a time."""
_ERRORS = pa.schema([(ERROR, pa.string()), (DIFF, pa.int64())])


@dataclass(frozen=True)
class PartScan:
    """The columns and rows to read of a shard's parts.

    `columns`: at least one. `convert`: a function of a batch of these columns and `__diff` to updates of `schema`: it
    may drop rows, and treats each row by itself. Rows that do not meet the `conditions`, and row groups of which the
    `sieve` wants no row, may be left out. `folder`: of spilled updates, by default the process's.
    """

    columns: tuple[str, ...]
    schema: pa.Schema
    convert: Callable[[pa.RecordBatch], pa.RecordBatch]
    conditions: tuple[Condition, ...] = ()
    sieve: Sieve | None = None
    folder: Path | None = None


@dataclass
class LiveRows:
    """`errors`: the consolidated error rows, `__error` and `__diff`. `rows`: pieces of the scan's schema with the live
    rows, each of which may come in several pieces, or in none; negative multiplicities come last."""

    errors: pa.Table
    rows: Iterator[pa.Table]


@dataclass
class _Exceptions:
    """The error rows of a scan, and its retractions; None: they are too many."""

    errors: list[pa.Table] = field(default_factory=list)
    retracted: pa.Table | None = None


def live_contents(parts: Iterable[FilePart], options: Options, scan: PartScan) -> LiveRows:
    """The contents that the parts' updates add up to. Large parts are read first. Raises PartGone, DiffOverflow."""
    ordered = sorted(parts, key=lambda part: (-part.rows_about, part.path))
    found = _exceptions(ordered, options, scan)
    errors = consolidate_stream(found.errors, _ERRORS)
    updates = (_converted(scan, batch) for batch in _read(ordered, options, scan, every_group))
    if found.retracted is not None:
        return LiveRows(errors, _settled(updates, found.retracted))
    shares = min(-(-sum(part.rows_about for part in ordered) // SHARE_ROWS), SHARES_MAX)
    divided = divide(updates, scan.schema, max(shares, 2), folder=scan.folder)
    return LiveRows(errors, (consolidate_stream(share, scan.schema) for share in divided))


def _read(
    parts: Sequence[FilePart], options: Options, scan: PartScan, groups: RowGroupTest
) -> Iterator[pa.RecordBatch]:
    columns = [*scan.columns, DIFF, ERROR]
    for part in parts:
        yield from read_part(
            part,
            options,
            columns=columns,
            batch_rows=BATCH_ROWS,
            conditions=scan.conditions,
            groups=groups,
            sieve=scan.sieve,
            read_bytes=READ_BYTES,
        )


def _converted(scan: PartScan, batch: pa.RecordBatch) -> pa.Table:
    """The updates of a batch, without errors."""
    errors = batch.column(ERROR)
    ok = batch if errors.null_count == len(errors) else batch.filter(pc.is_null(errors))
    return pa.Table.from_batches([scan.convert(ok.select([*scan.columns, DIFF]))], scan.schema)


def _exceptions(parts: Sequence[FilePart], options: Options, scan: PartScan) -> _Exceptions:
    found, kept, limit = _Exceptions(), [scan.schema.empty_table()], RETRACTED_BYTES
    for batch in _read(parts, options, scan, may_have_exceptions):
        if batch.column(ERROR).null_count < batch.num_rows:
            failed = pa.Table.from_batches([batch.select([ERROR, DIFF])]).filter(pc.is_valid(batch.column(ERROR)))
            found.errors.append(failed.cast(_ERRORS))
        if limit and pc.min(batch.column(DIFF)).as_py() < 0:
            kept.append(_converted(scan, batch.filter(pc.less(batch.column(DIFF), 0))))
            if sum(table.nbytes for table in kept) > limit:
                kept = [consolidate(pa.concat_tables(kept))]
                if kept[0].nbytes > limit // 2:
                    kept, limit = [], 0
    if limit:
        found.retracted = consolidate(pa.concat_tables(kept))
    return found


def _settled(updates: Iterable[pa.Table], owed: pa.Table) -> Iterator[pa.Table]:
    """The insertions that no retraction takes. `owed`: the retractions, consolidated."""
    pending, rows, size = list[pa.Table](), 0, 0
    probe = _most_selective(owed)
    for table in updates:
        inserted = table.filter(pc.greater(table.column(DIFF), 0))
        if owed.num_rows:
            inserted, taken = _split(inserted, owed, probe)
            pending.append(taken)
            rows, size = rows + taken.num_rows, size + taken.nbytes
        yield inserted
        if rows > max(PENDING_ROWS, owed.num_rows) or size > RETRACTED_BYTES:
            live, owed = _settle(pending, owed)
            pending, rows, size = [], 0, 0
            yield live
    if pending:
        live, owed = _settle(pending, owed)
        yield live
    if owed.num_rows:
        yield owed


def _split(inserted: pa.Table, owed: pa.Table, probe: str | None) -> tuple[pa.Table, pa.Table]:
    """(the insertions that no retraction is about, others)."""
    if probe is None:
        return inserted.slice(0, 0), inserted
    retracted = pc.is_in(inserted.column(probe), value_set=owed.column(probe).combine_chunks())
    return inserted.filter(pc.invert(retracted)), inserted.filter(retracted)


def _settle(pending: Sequence[pa.Table], owed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """(the insertions that are left, the retractions that are left)."""
    total = consolidate(pa.concat_tables([owed, *pending]))
    positive = pc.greater(total.column(DIFF), 0)
    return total.filter(positive), total.filter(pc.invert(positive))


def _most_selective(owed: pa.Table) -> str | None:
    """The column with the most distinct values among the retractions: a look-up in it rules out the most insertions.
    None where no column can be looked up: floats have several zeros and NaNs, and Arrow looks up no nested values."""
    flat = [f.name for f in owed.schema if not (pa.types.is_nested(f.type) or pa.types.is_floating(f.type))]
    named = [name for name in flat if name not in (TIME, DIFF, ERROR)]
    return max(named, key=lambda name: pc.count_distinct(owed.column(name)).as_py(), default=None)
