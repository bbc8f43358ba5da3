"""Lookups by key: binary searches for the hashes of a sorted delta in sorted segments.

    delta hashes (sorted) ──searchsorted──> [lo, hi) per delta row ──expand──> pairs ──compare keys──> hits

Pairs are expanded one slice at a time, so a key with millions of rows costs time, not memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows.columns import equal_at, take
from tidemark_replica.arrangement.rows.grouping import order_by_hash
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Array, Hashes, Ints, rows_that_fit

SLICE_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys to look up, ascending by hash, and the delta row of each."""

    hashes: Hashes
    columns: list[Array]
    rows: Ints

    @staticmethod
    def of(columns: Sequence[Array], rows: int) -> "Keys":
        """Keys in any order, sorted here."""
        hashes = key_hashes(columns, rows)
        order = order_by_hash(hashes)
        return Keys(hashes[order], take(columns, order), order)

    @staticmethod
    def sorted(hashes: Hashes, columns: list[Array]) -> "Keys":
        """Keys that already ascend by hash."""
        return Keys(hashes, columns, np.arange(len(hashes)))


@dataclass(frozen=True, slots=True)
class Hits:
    """Pairs of a delta row and a stored row with equal keys."""

    delta: Ints
    """The delta row of each pair."""
    stored: Any
    """The stored rows: a record batch of the requested columns."""


def probe(
    keys: Keys,
    segments: Iterable[Segment],
    layout: Layout,
    *,
    columns: Sequence[int] | None = None,
    before: int | None = None,
    slice_rows: int = SLICE_ROWS,
) -> Iterator[Hits]:
    """Yield all pairs of a key and a stored row of that key with a time below `before`; NULL matches NULL.

    `columns`: the file positions to fetch of stored rows (None: all). A slice has at most `slice_rows` pairs, fewer
    where stored rows are wide. Errs rows never match.
    """
    wanted_columns = list(range(len(layout.schema)) if columns is None else columns)
    if len(keys.hashes) == 0:
        return
    for segment in segments:
        wanted, begins, ends = key_ranges(keys.hashes, segment.hashes)
        if len(wanted) == 0:
            continue
        most = rows_that_fit(len(segment.hashes), segment.bytes, slice_rows)
        for chosen, stored in _expand(wanted, begins, ends, most):
            chosen, stored = _verified(keys, segment, layout, chosen, stored, before)
            if len(chosen):
                yield Hits(keys.rows[chosen], segment.rows.select(wanted_columns).take(pa.array(stored)))


def key_ranges(wanted: Hashes, stored: Hashes) -> tuple[Ints, Ints, Ints]:
    """(position, begin, end) of the wanted hashes that are stored."""
    begin, end = np.searchsorted(wanted, stored[0], "left"), np.searchsorted(wanted, stored[-1], "right")
    near = wanted[begin:end]
    low = np.searchsorted(stored, near, "left")
    found = np.flatnonzero(stored[low] == near)
    return found + begin, low[found], np.searchsorted(stored, near[found], "right")


def _expand(wanted: Ints, begins: Ints, ends: Ints, slice_rows: int) -> Iterator[tuple[Ints, Ints]]:
    """Ranges as pairs (wanted, stored), one slice at a time."""
    total = np.cumsum(ends - begins)
    shift = begins - (total - (ends - begins))
    for start in range(0, int(total[-1]), slice_rows):
        pairs = np.arange(start, min(start + slice_rows, int(total[-1])))
        which = np.searchsorted(total, pairs, "right")
        yield wanted[which], pairs + shift[which]


def _verified(
    keys: Keys, segment: Segment, layout: Layout, chosen: Ints, stored: Ints, before: int | None
) -> tuple[Ints, Ints]:
    """The pairs with equal keys, not just equal hashes, and a time below `before`."""
    columns = [segment.rows.column(1 + k) for k in layout.key]
    good = equal_at(keys.columns, chosen, columns, stored)
    if before is not None:
        good &= np.asarray(segment.rows.column(layout.time).to_numpy())[stored] < before
    return (chosen, stored) if good.all() else (chosen[good], stored[good])
