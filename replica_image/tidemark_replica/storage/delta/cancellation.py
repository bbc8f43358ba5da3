"""Leaves out most updates that cancel, before the rest is consolidated exactly: in two passes, in bounded memory.

    first pass     each row adds diff * hash 2 to one of many sums, which hash 1 chooses
    second pass    rows whose sum is zero are left out; the others are what changed, and a few that share their sums
    check          of what was left out, diff * hash 1 adds up to zero

    removed file   a  b  c         sums:   0   0   b' - b        second pass:   - b
    added file     c  a  b'                                                     + b'

Rows may be in any order in the files, and in different ones in the passes. Rows that do not cancel are left out where
their sum and the check's are both zero by chance. A row and the one in its place, where they are all that is left of a
sum, are lost only if both their hashes are equal: over random keys with 2^-66 at the most for numbers, 2^-64 for texts,
2^-62 for arrays of texts, whatever the rows are (`row_hashes` has the proof), and for most rows with about 2^-128.
Where the check fails, the table stops, and the next attempt has other keys. Rows that count so often that their sums
might lose many bits are never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from threading import Lock

import numpy as np
import pyarrow as pa

from tidemark_persist import DIFF
from tidemark_persist.files.row_hashes import RowHashes
from tidemark_replica.storage.delta.side_by_side import side_by_side

SUMS_MAX = 1 << 23
"""The sums, at most: 8 bytes each, and a byte for the second pass."""
DIFF_MAX = 1 << 20
"""Rows that count more often are not left out."""
Updates = Generator[pa.RecordBatch, None, None]


class SumsWrong(Exception):
    """Rows were left out that do not cancel, or the passes had different rows. Another attempt has other keys."""


class CancellationSums:
    """The sums of all updates. `columns`: of a row. `rows`: about how many there are."""

    def __init__(self, columns: Sequence[str], rows: int) -> None:
        self._columns = columns
        bits = max(6, (min(rows, SUMS_MAX) - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        self._hashes = RowHashes()
        self._sums = np.zeros(1 << bits, np.uint64)
        self._remains = np.zeros(1 << bits, np.bool_)
        self._check = np.zeros(1, np.uint64)  # an array wraps around in silence
        self._lock = Lock()

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds the rows. Callable from any thread."""
        places, values = self._hashes.hash_pair(self._rows(batch), batch.num_rows)
        diffs = np.asarray(batch.column(DIFF))
        values *= diffs.view(np.uint64)
        places >>= self._shift
        found = places.view(np.int64)
        with self._lock:
            if len(diffs) and (diffs.min() < -DIFF_MAX or diffs.max() > DIFF_MAX):
                self._remains[found[(diffs < -DIFF_MAX) | (diffs > DIFF_MAX)]] = True
            np.add.at(self._sums, found, values)

    def settle(self) -> None:
        """All updates are added."""
        self._remains |= self._sums != 0

    def remaining(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows that may remain, if there are any. Callable from any thread."""
        hashes = self._hashes.first_hash(self._rows(batch), batch.num_rows)
        remains = self._remains[(hashes >> self._shift).view(np.int64)]
        hashes *= np.asarray(batch.column(DIFF)).view(np.uint64)
        out = np.add.reduce(hashes, where=~remains)
        with self._lock:
            self._check += out
        return batch.filter(pa.array(remains)) if remains.any() else None

    def check_left_out(self) -> None:
        """Raises SumsWrong where the rows that were left out do not cancel."""
        if self._check[0]:
            raise SumsWrong(
                "the files of the change were read twice, and had other rows the second time; they are read again soon"
            )

    def _rows(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(name) for name in self._columns]


def uncancelled(parts: Callable[[], Iterable[Updates]], columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """The updates of all parts without most that cancel. `parts`: gives them anew for each pass; texts may be in
    dictionaries. `columns`: of a row. `rows`: about how many there are. Raises SumsWrong at the end."""
    sums = CancellationSums(columns, rows)
    for _ in side_by_side(sums.add, parts()):
        pass
    sums.settle()
    yield from side_by_side(sums.remaining, parts())
    sums.check_left_out()
