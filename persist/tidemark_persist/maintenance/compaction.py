"""Compaction: few large files instead of many small ones, with the updates consolidated up to the since.

Files form *runs* (one append, or the output of one compaction, which may be several files). Sorted by size
they fall into *tiers*: a tier ends where the next run outweighs all of it by more than `GROWTH`. A tier
that has grown to `runs_min` runs is merged, with everything smaller:

    sizes   1 1 1 1 1 1 1 1 9 | 70 | 800          the first tier has nine runs and becomes one; 70 stays
                            v
    sizes                  17 | 70 | 800

So the number of files grows with the logarithm of the data, every update is rewritten a logarithmic number of
times, and what cancels out is at most a constant share of what is live.

Readers see no difference: times move only up to the since (`advance`), an earlier listing keeps reading the old
files, and the commit has `dataChange=false`. If any input was replaced meanwhile, the compaction is dropped.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist.errors import PersistError
from tidemark_persist.files.consolidate import advance, consolidate_stream
from tidemark_persist.files.file_parts import part_of, read_part
from tidemark_persist.files.spill import divide
from tidemark_persist.files.staging import ROW_GROUP_ROWS, write_file
from tidemark_persist.log.entry import DataFile
from tidemark_persist.schema import DIFF, TIME
from tidemark_persist.storage.storage import Storage
from tidemark_persist.times import EMPTY, Time

GROWTH = 2


def choose(files: Sequence[DataFile], runs_min: int) -> tuple[DataFile, ...]:
    """The files to merge now, or none: the first tier of at least `runs_min` runs, and all smaller ones."""
    runs = defaultdict(list)
    for file in files:
        runs[run_of(file.path)].append(file)
    smaller: list[DataFile] = []
    for tier in _tiers(sorted(runs.values(), key=_size)):
        smaller += [file for run in tier for file in run]
        if len(tier) >= runs_min:
            return tuple(smaller)
    return ()


def _tiers(runs: Sequence[Sequence[DataFile]]) -> Iterator[list[Sequence[DataFile]]]:
    """Runs, smallest first, cut where one outweighs those before it."""
    tier: list[Sequence[DataFile]] = []
    weight = 0
    for run in runs:
        if tier and _size(run) > GROWTH * weight:
            yield tier
            tier, weight = [], 0
        tier.append(run)
        weight += _size(run)
    if tier:
        yield tier


def rewrite(
    storage: Storage, files: Sequence[DataFile], schema: pa.Schema, since: Time, rows_in_memory: int
) -> tuple[DataFile, ...]:
    """Write the consolidation of `files` as one run. Nothing refers to it yet; an attempt that fails leaves no file.

    Raises PartGone, StorageError.
    """
    run = uuid.uuid4().hex
    shares = -(-sum(max(file.rows, 0) for file in files) // rows_in_memory)
    written: list[DataFile] = []
    try:
        for index, share in enumerate(divide(_updates(storage, files, since), schema, shares)):
            file = write_file(storage, _row_groups(share, schema), schema, f"{run}.{index}.parquet")
            if file is not None:
                written.append(file)
    except PersistError:
        discard(storage, written)
        raise
    return tuple(written)


def discard(storage: Storage, written: Sequence[DataFile]) -> None:
    """Remove files that no commit refers to."""
    for file in written:
        storage.remove(file.path)


def run_of(path: str) -> str:
    """The run a file belongs to: its name up to the first dot."""
    return path.split(".", 1)[0]


def _size(run: Sequence[DataFile]) -> int:
    return sum(file.size for file in run)


def _updates(storage: Storage, files: Sequence[DataFile], since: Time) -> Iterator[pa.Table]:
    for file in files:
        whole = part_of(storage.location, file, Time(0), EMPTY)
        for batch in read_part(whole, storage.options):
            yield advance(pa.Table.from_batches([batch]), since)


def _row_groups(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """The consolidation: insertions, then retractions, each in order, in pieces that become row groups. So row groups
    can be skipped by time and by the first column, and readers find the retractions without reading insertions."""
    merged = _in_order(consolidate_stream(tables, schema))
    retracted = pc.less(merged.column(DIFF), 0)
    for updates in (merged.filter(pc.invert(retracted)), merged.filter(retracted)):
        for start in range(0, updates.num_rows, ROW_GROUP_ROWS):
            yield updates.slice(start, ROW_GROUP_ROWS)


def _in_order(updates: pa.Table) -> pa.Table:
    """Sort by time, and at each time by the first column, unless that is nested.

    Of rows in chunks at few times, which most compactions have, two sorts by one key take about half as long as one by
    two keys; of rows at many times they take up to three times as long."""
    first = updates.column(0)
    by_column = None if pa.types.is_nested(first.type) else pc.sort_indices(first).to_numpy()
    times = updates.column(TIME).to_numpy()
    if by_column is None:
        return updates.take(pa.array(np.argsort(times, kind="stable")))
    return updates.take(pa.array(by_column[np.argsort(times[by_column], kind="stable")]))
