"""Partitions of a window: rows in its order, each as often as it is there, and where their peers and partition are.

    version 0                     version 1
    a a b c                       b c c                  in the window's order
    begin = 0, end = 4            begin = 4, end = 7     of every row's partition
    peers of a: [0, 2)            peers of c: [5, 7)     rows equal in the order's columns

Ties are broken by the row's number in the canonical order, so every row's place is a function of the contents alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tidemark_replica.arrangement.rows.ordering import Order, changes, order_rows
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints
from tidemark_replica.kernels.groups.group_versions import GroupVersions


@dataclass(frozen=True)
class Partitions:
    """All rows of some versions, one place each."""

    columns: list[Array]
    """The distinct rows'."""
    order: tuple[Order, ...]
    words: list[Ints]
    """Of every distinct row, what it is ordered by."""
    row: Ints
    """Of every place, its distinct row; places ascend by version, then order."""
    version: Ints

    @staticmethod
    def of(versions: GroupVersions, order: Sequence[Order]) -> "Partitions":
        words = [w for o in order for w in o.words(versions.columns)]
        place = np.empty(len(versions.columns[0]) if versions.columns else 1, np.int64)
        place[order_rows(words, len(place))] = np.arange(len(place))
        chosen = order_rows([versions.version, place[versions.row]], len(versions.row))
        copies = np.repeat(chosen, versions.count[chosen])
        return Partitions(versions.columns, tuple(order), words, versions.row[copies], versions.version[copies])

    @property
    def size(self) -> int:
        return len(self.row)

    @cached_property
    def here(self) -> Ints:
        """Of every place itself."""
        return np.arange(self.size)

    @cached_property
    def begin(self) -> Ints:
        return _begins(self._new_partition)

    @cached_property
    def end(self) -> Ints:
        return _ends(self._new_partition)

    @cached_property
    def peers_begin(self) -> Ints:
        return _begins(self.new_peers)

    @cached_property
    def peers_end(self) -> Ints:
        return _ends(self.new_peers)

    @cached_property
    def new_peers(self) -> Bools:
        """Whether a place's row is no peer of the one before it."""
        return changes([self.version, *(w[self.row] for w in self.words)], self.size)

    @cached_property
    def _new_partition(self) -> Bools:
        return changes([self.version], self.size)


def _begins(new: Bools) -> Ints:
    """Of every place where its run begins."""
    starts = np.flatnonzero(new)
    return np.asarray(starts[np.cumsum(new) - 1])


def _ends(new: Bools) -> Ints:
    starts = np.flatnonzero(new)
    return np.asarray(np.append(starts[1:], len(new))[np.cumsum(new) - 1])
