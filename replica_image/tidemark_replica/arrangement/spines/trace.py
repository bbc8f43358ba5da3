"""Traces: reading one manifest of an arrangement through this process's open batches.

probe(keys)          rows of given keys, over all batches          (kernels)
sizes(keys)          how many there are, at most, without reading  (kernels)
scan(lower, upper)   the updates of a range of times               (importers)
rows_at(as_of)       the consolidated contents at a time, streamed (peeks, hydration of importers)
lookup(key, as_of)   the same for one key                          (peeks with a literal key)
errors_at(as_of)     the errors at a time: a few binary searches   (every peek reads them first)
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.batch import BatchRef, Segment
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.batches.key_lookup import SLICE_ROWS, Hits, Keys, probe
from tidemark_replica.arrangement.batches.small_batches import small_runs
from tidemark_replica.arrangement.errors import OutOfFrontier
from tidemark_replica.arrangement.rows.consolidate import consolidate, consolidate_sorted
from tidemark_replica.arrangement.rows.hashing import ERRS_HASH
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.task_share import WHOLE_SHARE, TaskShare
from tidemark_replica.arrangement.rows.updates import Array, Ints, Updates, diffs, errors, make_updates, row_columns
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.spine import RANGE_ROWS, ranges


class Trace:
    """One version of an arrangement, to be read."""

    def __init__(self, manifest: Manifest, cache: BatchCache) -> None:
        self.manifest = manifest
        self.layout = manifest.layout
        self._cache = cache

    def segments(self) -> Iterator[Segment]:
        """All segments."""
        for ref in self.manifest.batches:
            yield from self._cache.segments(ref, self.layout)

    def combined_segments(self) -> Iterator[Segment]:
        """All segments; small neighbours combined."""
        for refs in small_runs(self.manifest.batches):
            yield from self._cache.combined(refs, self.layout)

    def probe(
        self,
        keys: Keys,
        *,
        columns: Sequence[int] | None = None,
        before: int | None = None,
        slice_rows: int = SLICE_ROWS,
    ) -> Iterator[Hits]:
        """Yield the stored rows of the keys with times below `before` (None: any)."""
        for refs in small_runs(ref for ref in self.manifest.batches if not _too_late(ref, before)):
            needs_filter = before if before is not None and any(ref.last_time >= before for ref in refs) else None
            segments = self._cache.combined(refs, self.layout)
            yield from probe(keys, segments, self.layout, columns=columns, before=needs_filter, slice_rows=slice_rows)

    def sizes(self, keys: Keys) -> Ints:
        """The number of stored rows with each key's hash: an upper bound of the key's rows, in all versions."""
        total = np.zeros(len(keys.hashes), np.int64)
        for refs in small_runs(self.manifest.batches):
            for segment in self._cache.combined(refs, self.layout):
                total += np.searchsorted(segment.hashes, keys.hashes, "right")
                total -= np.searchsorted(segment.hashes, keys.hashes, "left")
        return total

    def scan(self, lower: int, upper: int, share: TaskShare = WHOLE_SHARE) -> Iterator[Updates]:
        """Yield the share's stored updates with lower <= time < upper. Raises OutOfFrontier unless since < lower.

        A new reader takes `rows_at(as_of)` first, then scans from as_of + 1 on.
        """
        if lower <= self.manifest.since:
            raise OutOfFrontier(
                f"arrangement {self.manifest.arrangement}: cannot read updates from {lower} on, since times up to "
                f"{self.manifest.since} are compacted"
            )
        if upper > self.manifest.upper:
            raise OutOfFrontier(
                f"arrangement {self.manifest.arrangement} is complete up to {self.manifest.upper}, not {upper}"
            )
        for ref in self.manifest.batches:
            if ref.last_time < lower or ref.first_time >= upper:
                continue
            for segment in _of_share(self._cache.segments(ref, self.layout), share):
                times = np.asarray(segment.rows.column(self.layout.time).to_numpy())
                for rows in _slices(segment.rows, np.flatnonzero((times >= lower) & (times < upper))):
                    yield self._updates(rows)

    def rows_at(self, as_of: int, share: TaskShare = WHOLE_SHARE, *, range_rows: int = RANGE_ROWS) -> Iterator[Updates]:
        """Yield the share's contents at `as_of`, oks and errs, consolidated, with `__time` = `as_of`.

        Raises OutOfFrontier.
        """
        self.manifest.check_readable(as_of)
        for parts in ranges(list(_of_share(self.segments(), share)), self.layout, range_rows):
            past = pa.concat_batches([_up_to(rows, as_of, self.layout) for rows in parts])
            rows = consolidate_sorted(past, self.layout, as_of)
            if rows.num_rows:
                yield self._updates(rows)

    def lookup(self, key: Sequence[Array], as_of: int) -> Updates:
        """The contents at `as_of` for the keys in the rows of `key`, which are distinct. Raises OutOfFrontier."""
        return self.lookup_keys(Keys.of(key, len(key[0]) if key else 1), as_of)

    def lookup_keys(self, keys: Keys, as_of: int) -> Updates:
        """The same for keys whose hashes are known. Raises OutOfFrontier."""
        self.manifest.check_readable(as_of)
        return self._consolidated_at([hits.stored for hits in self.probe(keys, before=as_of + 1)], as_of)

    def errors_at(self, as_of: int) -> Updates:
        """The errs rows at `as_of`, consolidated; empty if the collection has no error. Raises OutOfFrontier."""
        self.manifest.check_readable(as_of)
        found = []
        for ref in self.manifest.batches:
            if ref.errors == 0 or _too_late(ref, as_of + 1):
                continue
            for segment in self._cache.segments(ref, self.layout):
                errs = segment.rows.slice(0, int(np.searchsorted(segment.hashes, ERRS_HASH, "right")))
                found.append(_up_to(errs, as_of, self.layout))
        return self._consolidated_at(found, as_of)

    def _consolidated_at(self, rows: list[Any], as_of: int) -> Updates:
        if not rows:
            return self._updates(self.layout.empty)
        updates = self._updates(pa.concat_batches(rows))
        at = np.full(updates.num_rows, as_of, np.int64)
        return consolidate(make_updates(row_columns(updates), at, diffs(updates), errors(updates)))

    def _updates(self, rows: Any) -> Updates:
        return file_updates(rows, self.layout)


def file_updates(rows: Any, layout: Layout) -> Updates:
    """File rows as a stream of updates."""
    columns = rows.columns
    weights = np.asarray(columns[layout.weights[0]].to_numpy())
    times = np.asarray(columns[layout.time].to_numpy())
    return make_updates(columns[1 : layout.time], times, weights, columns[layout.tag])


def _of_share(segments: Iterable[Segment], share: TaskShare) -> Iterator[Segment]:
    for segment in segments:
        begin, end = share.bounds(segment.hashes)
        if end > begin:
            rows = segment.rows.slice(begin, end - begin)
            yield Segment(segment.hashes[begin:end], rows, rows.nbytes)


def _too_late(ref: BatchRef, before: int | None) -> bool:
    return before is not None and ref.first_time >= before


def _slices(rows: Any, indices: Any) -> Iterator[Any]:
    for start in range(0, len(indices), SLICE_ROWS):
        yield rows.take(pa.array(indices[start : start + SLICE_ROWS]))


def _up_to(rows: Any, as_of: int, layout: Layout) -> Any:
    """The file rows with times up to `as_of`."""
    keep = np.asarray(rows.column(layout.time).to_numpy()) <= as_of
    return rows if keep.all() else rows.filter(pa.array(keep))
