"""Shares: how the tasks of an exchanged step divide all hashes among them.

    hashes     0 ─────────────┬─────────────┬─────────────┬───────────── 2^64
    share        0 of 4         1 of 4        2 of 4        3 of 4

A group, or all rows that a join may bring together, have one hash, so they are of one share. Ranges, not remainders:
what the tasks write is sorted by hash, so their files are one run of a spine, one file after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidemark_replica.arrangement.rows.hashing import bucket_edges, bucket_of
from tidemark_replica.arrangement.rows.updates import Hashes, Ints


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Which of `of` equal ranges of hashes a task has."""

    index: int = 0
    of: int = 1

    def has(self, hash: int) -> bool:
        """Whether a hash is of this share."""
        return int(share_indices(np.array([hash], np.uint64), self.of)[0]) == self.index

    def bounds(self, hashes: Hashes) -> tuple[int, int]:
        """Where, among hashes that ascend, the share's begin and end."""
        edges = [0, *np.searchsorted(hashes, bucket_edges(self.of), "left").tolist(), len(hashes)]
        return edges[self.index], edges[self.index + 1]


WHOLE_SHARE = TaskShare()
"""One task has everything."""


def share_indices(hashes: Hashes, of: int) -> Ints:
    """The index of the share that each hash is of."""
    return bucket_of(hashes, of)
