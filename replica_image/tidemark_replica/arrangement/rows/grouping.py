"""Grouping equal rows: by hash first, then exactly.

    rows ──hash──> sort by hash ──> neighbours with one hash: compare the keys
                                        │ all equal: groups are the runs of one hash
                                        └ some differ (a true collision): sort again by (hash, exact codes)

So the result is exact whatever the hash does; a collision only costs time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidemark_replica.arrangement.rows.columns import equal_at, equal_rows, take
from tidemark_replica.arrangement.rows.nested_columns import positions
from tidemark_replica.arrangement.rows.ordering import ranks
from tidemark_replica.arrangement.rows.updates import Array, Hashes, Ints

_SMALL, _MANY = 64, 1 << 11
_RUNS = 16


@dataclass(frozen=True, slots=True)
class Groups:
    """An order of rows, ascending by hash, in which equal rows are neighbours."""

    order: Ints
    """Row numbers; within a group ascending."""
    starts: Ints
    """The begin of each group in `order`."""

    @property
    def first(self) -> Ints:
        """The first row of each group."""
        return self.order[self.starts]

    def ids(self) -> Ints:
        """The group of every row."""
        begins = np.zeros(len(self.order), np.int64)
        begins[self.starts[1:]] = 1
        result = np.empty_like(begins)
        result[self.order] = np.cumsum(begins)
        return result


def order_by_hash(hashes: Hashes) -> Ints:
    """A stable order by hash.

    Few rows: row numbers replace the low bits of the hashes, since sorting values is faster than sorting an index. Many
    rows in a few ascending runs: merged. Other rows: two counting sorts of 16 bits each, over the upper half. Hashes
    that differ only in bits that were not compared are sorted once more where they are in the wrong order.
    """
    n = len(hashes)
    if n < _SMALL:
        return np.argsort(hashes, kind="stable")
    if n < _MANY:
        return _tagged(hashes)
    if np.count_nonzero(hashes[1:] < hashes[:-1]) < _RUNS:
        return np.argsort(hashes, kind="stable")
    return _by_upper_half(hashes)


def _tagged(hashes: Hashes) -> Ints:
    n = len(hashes)
    mask = np.uint64((1 << (n - 1).bit_length()) - 1)
    tagged = (hashes & ~mask) | np.arange(n, dtype=np.uint64)
    tagged.sort()
    order = (tagged & mask).view(np.int64)
    ordered = hashes[order]
    return np.argsort(hashes, kind="stable") if (ordered[1:] < ordered[:-1]).any() else order


def _by_upper_half(hashes: Hashes) -> Ints:
    first = np.argsort((hashes >> np.uint64(32)).astype(np.uint16), kind="stable")
    order = first[np.argsort((hashes >> np.uint64(48)).astype(np.uint16)[first], kind="stable")]
    ordered = hashes[order]
    wrong = np.flatnonzero(ordered[1:] < ordered[:-1])  # these share the upper half of their hash
    if len(wrong) == 0:
        return order
    halves = ordered >> np.uint64(32)
    mixed = np.unique(halves[wrong])
    begins, ends = np.searchsorted(halves, mixed, "left"), np.searchsorted(halves, mixed, "right")
    _, places = positions(begins, ends - begins)
    order[places] = order[places][np.argsort(ordered[places], kind="stable")]
    return order


def repeated(hashes: Hashes) -> Ints:
    """The rows whose hash occurs more than once."""
    order = order_by_hash(hashes)
    ordered = hashes[order]
    alike = ordered[1:] == ordered[:-1]
    if not alike.any():
        return np.empty(0, np.int64)
    tied = np.zeros(len(order), np.bool_)
    tied[order[1:][alike]] = True
    tied[order[:-1][alike]] = True
    return np.flatnonzero(tied)


def group_rows(hashes: Hashes, columns: Sequence[Array]) -> Groups:
    """Group rows by equal `columns`. `hashes` must be a function of the columns."""
    order = order_by_hash(hashes)
    if len(order) == 0:
        return Groups(order, np.empty(0, np.int64))
    ties, same = _compare_neighbours(hashes, columns, order)
    if not same.all():
        codes = [ranks(c) for c in columns]
        order = np.lexsort([*codes, hashes])
        ties, same = _compare_neighbours(hashes, columns, order)
    begins = np.ones(len(order), np.bool_)
    begins[ties[same] + 1] = False
    return Groups(order, np.flatnonzero(begins))


def _compare_neighbours(hashes: Hashes, columns: Sequence[Array], order: Ints) -> tuple[Ints, np.ndarray]:
    ordered = hashes[order]
    alike = ordered[1:] == ordered[:-1]
    ties = np.flatnonzero(alike)
    if len(ties) == 0:
        return ties, np.ones(0, np.bool_)
    if 2 * len(ties) < len(alike) or len(order) < _MANY:
        return ties, equal_at(columns, order[ties], columns, order[ties + 1])
    rows = take(columns, order)
    same = equal_rows([c.slice(0, len(alike)) for c in rows], [c.slice(1) for c in rows], len(alike))
    return ties, same[ties]
