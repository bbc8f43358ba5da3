"""Cutting a hash with more rows than a merge holds, so that equal rows stay together.

    hash h:  (k, 1) (k, 2) (k, 3) ... a million of them     ──hash of the whole row──>  pieces of `range_rows`

A skewed key has one hash, which no range of hashes cuts. Its rows need no order among themselves, so another hash, that
of the whole row, assigns them to pieces: rows that are to be added up are in one piece. Beside a piece, this holds 16
bytes per row.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.hashing import hash_rows
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.updates import Hashes

_TOO_MANY = 2


def row_ranges(parts: Sequence[Any], layout: Layout, range_rows: int) -> Iterator[list[Any]]:
    """Cut parts, each ascending by hash, so that hashes with many rows come in several pieces."""
    if sum(p.num_rows for p in parts) <= _TOO_MANY * range_rows:
        yield list(parts)
        return
    begins = [0] * len(parts)
    for heavy in _heavy(parts, range_rows):
        before, after = (_edges(parts, heavy, side) for side in ("left", "right"))
        yield from _cut(parts, begins, before)
        yield from _dealt(next(_cut(parts, before, after)), layout, range_rows)
        begins = after
    yield from _cut(parts, begins, [p.num_rows for p in parts])


def _heavy(parts: Sequence[Any], range_rows: int) -> Hashes:
    """The hashes with more than `range_rows` rows, ascending."""
    hashes, counts = np.unique(np.concatenate([file_hashes(p) for p in parts]), return_counts=True)
    return np.asarray(hashes[counts > range_rows])


def _edges(parts: Sequence[Any], hash: np.uint64, side: Literal["left", "right"]) -> list[int]:
    return [int(np.searchsorted(file_hashes(p), hash, side)) for p in parts]


def _cut(parts: Sequence[Any], begins: Sequence[int], ends: Sequence[int]) -> Iterator[list[Any]]:
    cut = [p.slice(b, e - b) for p, b, e in zip(parts, begins, ends, strict=True) if e > b]
    if cut:
        yield cut


def _dealt(parts: Sequence[Any], layout: Layout, range_rows: int) -> Iterator[list[Any]]:
    """Rows of one hash in pieces, by the hash of the whole row."""
    count = -(-sum(p.num_rows for p in parts) // range_rows)
    dealt = []
    for part in parts:
        piece = hash_rows(part.columns[1 : layout.time], part.num_rows) % np.uint64(count)
        order = np.argsort(piece, kind="stable")
        dealt.append((part, order, np.searchsorted(piece[order], np.arange(count + 1, dtype=np.uint64))))
    for n in range(count):
        rows = [part.take(pa.array(order[edges[n] : edges[n + 1]])) for part, order, edges in dealt]
        if any(r.num_rows for r in rows):
            yield [r for r in rows if r.num_rows]
