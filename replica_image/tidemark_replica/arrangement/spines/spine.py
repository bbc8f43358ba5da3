"""Spines: how an arrangement's batches are merged so that there are few of them.

    batches     [1,000,000 rows] [60,000] [50,000] [9,000] | [900] [100] [100]      oldest ... newest
                                 └─────────────────────────────────────┘ merged: everything from the first batch
                                 on that is not at least twice as long as the one after it

So sizes at least double from batch to batch, there are O(log n) batches, and a row is rewritten O(log n) times in its
life. Behind the bar, small batches wait until there are eight: merging them costs more than probing them. Where a step
ran in several tasks, each wrote a batch for its own range of hashes (`rows/task_share.py`): batches of one step that do
not overlap count as one here.

A merge consolidates and advances times to `since`. A batch whose times are all at or below `since` is rewritten alone,
once: otherwise an idle arrangement would keep its history for ever. Small batches wait for a merge: a step over several
times would rewrite the batch of the step before.

Planning is pure; `merge` (in `step.py`) does the work, in any process; `apply` replaces the merged batches in a
manifest. The geometric merging is that of differential dataflow's spines, and of LSM trees.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.batch import BatchRef, BatchTimes, Segment
from tidemark_replica.arrangement.batches.row_ranges import row_ranges
from tidemark_replica.arrangement.batches.value_ranges import value_ranges
from tidemark_replica.arrangement.errors import StaleManifest
from tidemark_replica.arrangement.rows.consolidate import consolidate_sorted
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Hashes, rows_that_fit
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest

SMALL_ROWS, FAN_IN = 1 << 12, 8
"""FAN_IN batches of fewer than SMALL_ROWS rows are merged together, and not before."""

RANGE_ROWS = 1 << 18
"""Rows that a merge holds and consolidates at a time: a range of hashes; a hash with more rows is split further."""

SEGMENT_ROWS, SEGMENT_BYTES = 1 << 21, 1 << 26
"""The largest segment of a file: what a merge holds at most, beside one range."""


@dataclass(frozen=True)
class Merge:
    """A planned merge: neighbouring batches, and the since that their times are advanced to."""

    arrangement: ArrangementId
    batches: tuple[BatchRef, ...]
    since: int

    @property
    def span(self) -> BatchTimes:
        return BatchTimes(self.batches[0].lower, self.batches[-1].upper, self.since)


def plan_merges(manifest: Manifest) -> tuple[Merge, ...]:
    """The merges that restore the doubling sizes of the spine; often none."""
    merges = []
    since = min(manifest.since, manifest.upper - 1)  # no time may move to upper or beyond, where later steps begin
    levels = levels_of(manifest.batches)
    if levels and _is_read_by_time(levels[-1], since):
        levels.pop()
    begin = newest_run([sum(b.rows for b in level) for level in levels])
    crowded = tuple(b for level in levels[begin:] for b in level) if begin < len(levels) - 1 else ()
    if crowded:
        merges.append(Merge(manifest.arrangement, crowded, since))
    for b in manifest.batches:  # its times, once several, are all compacted to one, and it is large enough
        if b.rows >= SMALL_ROWS and b.first_time < b.last_time <= since and b not in crowded:
            merges.append(Merge(manifest.arrangement, (b,), since))
    return tuple(merges)


def _is_read_by_time(newest: Sequence[BatchRef], since: int) -> bool:
    """Whether a large level has times that may not be moved yet: a merge would leave them, and be repeated soon."""
    is_large = sum(batch.rows for batch in newest) >= SMALL_ROWS
    return is_large and any(batch.first_time < batch.last_time > since for batch in newest)


def levels_of(spine: Sequence[BatchRef]) -> list[list[BatchRef]]:
    """The batches as sorted runs, oldest first. Batches of one step with disjoint hashes are one run."""
    levels: list[list[BatchRef]] = []
    step: list[list[BatchRef]] = []  # the newest levels: those of the same span
    spans = [(batch.lower, batch.upper, batch.since) for batch in spine]
    for batch, span, before in zip(spine, spans, [None, *spans], strict=False):
        if span != before:
            step = []
        fitting = next((level for level in step if level[-1].last_hash < batch.first_hash), None)
        if fitting is None:
            step.append([])
            levels.append(fitting := step[-1])
        fitting.append(batch)
    return levels


def newest_run(sizes: Sequence[int]) -> int:
    """The begin of the newest batches to merge, given sizes, oldest first; the last position: no merge."""
    small = len(sizes)
    while small > 0 and sizes[small - 1] < SMALL_ROWS:
        small -= 1
    begin = small if len(sizes) - small >= FAN_IN else _crowded(sizes[:small])
    if begin is None:
        return max(len(sizes) - 1, 0)
    while begin > 0 and sizes[begin - 1] < 2 * sum(sizes[begin:]):
        begin -= 1
    return begin


def _crowded(sizes: Sequence[int]) -> int | None:
    """The first batch with less than twice the size of the next."""
    return next((i for i in range(len(sizes) - 1) if sizes[i] < 2 * sizes[i + 1]), None)


def apply(manifest: Manifest, merge: Merge, merged: BatchRef | None) -> Manifest:
    """The manifest with a merge's result (None: everything cancelled) in place of the merged batches.

    Raises StaleManifest.
    """
    wanted = {b.file for b in merge.batches}
    positions = [i for i, b in enumerate(manifest.batches) if b.file in wanted]
    if merge.arrangement != manifest.arrangement or len(positions) != len(wanted):
        raise StaleManifest(f"arrangement {manifest.arrangement} no longer holds the batches {sorted(wanted)}")
    if merge.since > manifest.since:
        raise StaleManifest(f"a merge advanced times to {merge.since}, but {manifest.since} must stay readable")
    batches = [b for b in manifest.batches if b.file not in wanted]
    if merged is not None:
        batches.insert(positions[0], merged)
    return replace(manifest, batches=tuple(batches))


def merge_segments(
    runs: Sequence[Segment], layout: Layout, since: int, range_rows: int = RANGE_ROWS, *, whole_hashes: bool = False
) -> Iterator[Any]:
    """Merge sorted runs into consolidated record batches, ascending by hash, of about `range_rows` rows.

    `whole_hashes`: keep all rows of a hash in one batch. A value-ordered arrangement ignores it.
    """
    for parts in ranges(runs, layout, range_rows, whole_hashes=whole_hashes):
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        consolidated = consolidate_sorted(rows, layout, since)
        if consolidated.num_rows:
            yield consolidated


def hash_ranges(runs: Sequence[Segment], range_rows: int) -> Iterator[list[Any]]:
    """Cut sorted runs at common hashes: the runs' rows of each range, about `range_rows` in all."""
    range_rows = _fitting([run.rows for run in runs], range_rows)
    after: np.uint64 | None = None
    for last in [*_cuts(runs, range_rows), None]:
        parts = [part for run in runs if (part := run.between(after, last)).num_rows]
        after = last
        if parts:
            yield parts


def ranges(
    runs: Sequence[Segment], layout: Layout, range_rows: int, *, whole_hashes: bool = False
) -> Iterator[list[Any]]:
    """The ranges of `hash_ranges`, but hashes with too many rows are cut too. The updates of one row stay together."""
    for parts in hash_ranges(runs, range_rows):
        fitting = _fitting(parts, range_rows)
        if layout.order is not None:
            yield from value_ranges(parts, layout, fitting)
        elif whole_hashes:
            yield parts
        else:
            yield from row_ranges(parts, layout, fitting)


def _fitting(parts: Sequence[Any], range_rows: int) -> int:
    """`range_rows`, or fewer if the rows are wide."""
    return rows_that_fit(sum(p.num_rows for p in parts), sum(p.nbytes for p in parts), range_rows)


def _cuts(runs: Sequence[Segment], range_rows: int) -> Hashes:
    """Hashes that cut the runs into ranges of about `range_rows` rows."""
    if sum(len(r.hashes) for r in runs) <= range_rows:
        return np.empty(0, np.uint64)
    stride = max(range_rows // 16, 1)
    sample = np.sort(np.concatenate([r.hashes[stride - 1 :: stride] for r in runs]))
    return np.unique(sample[15::16])


def coalesce(batches: Iterator[Any], rows: int = SEGMENT_ROWS) -> Iterator[Any]:
    """Combine record batches into longer ones: a probe costs time per segment of a file."""
    pending: list[Any] = []
    for batch in batches:
        pending.append(batch)
        if sum(b.num_rows for b in pending) >= rows or sum(b.nbytes for b in pending) >= SEGMENT_BYTES:
            yield pa.concat_batches(pending)
            pending = []
    if pending:
        yield pa.concat_batches(pending) if len(pending) > 1 else pending[0]
