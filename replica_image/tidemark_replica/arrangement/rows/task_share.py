"""Task shares: the ranges of hashes of the tasks of an exchanged step.

    hashes     0 ─────────────┬─────────────┬─────────────┬───────────── 2^64
    share        0 of 4         1 of 4        2 of 4        3 of 4

All rows of a group, and all rows that a join may match, have one hash, so they are in one share. Shares are ranges, not
remainders: tasks write files sorted by hash, so their files together are one run of a spine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidemark_replica.arrangement.rows.updates import Hashes, Ints


@dataclass(frozen=True, slots=True)
class TaskShare:
    """The range of hashes of one task: number `index` of `of` equal ranges."""

    index: int = 0
    of: int = 1

    def has(self, hash: int) -> bool:
        """Whether a hash is in this share."""
        return int(share_indices(np.array([hash], np.uint64), self.of)[0]) == self.index

    def bounds(self, hashes: Hashes) -> tuple[int, int]:
        """[begin, end) of the share among ascending hashes."""
        edges = [0, *np.searchsorted(hashes, share_edges(self.of), "left").tolist(), len(hashes)]
        return edges[self.index], edges[self.index + 1]


WHOLE_SHARE = TaskShare()
"""The share of a single task: all hashes."""


def share_indices(hashes: Hashes, of: int) -> Ints:
    """The index of the share of each hash."""
    return ((hashes >> np.uint64(32)) * np.uint64(of) >> np.uint64(32)).astype(np.int64)


def share_edges(of: int) -> Hashes:
    """The first hash of each share after the first one."""
    return np.array([-(-(index << 32) // of) << 32 for index in range(1, of)], dtype=np.uint64)
