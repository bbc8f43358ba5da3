"""Partitions of a window: rows in its order, each as often as its multiplicity, with the bounds of peers and partition.

    version 0                     version 1
    a a b c                       b c c                  in the window's order
    begin = 0, end = 4            begin = 4, end = 7     the bounds of every row's partition
    peers of a: [0, 2)            peers of c: [5, 7)     rows that are equal in the order's columns

Ties are broken by the row's number in the canonical order, so a row's position is a function of the contents alone.
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
    """All rows of some versions, one position per copy of a row."""

    columns: list[Array]
    """The columns of the distinct rows."""
    order: tuple[Order, ...]
    words: list[Ints]
    """The sort words of every distinct row."""
    row: Ints
    """The distinct row at every position; positions ascend by version, then order."""
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
    def all_positions(self) -> Ints:
        """The number of every position."""
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
        """Whether the row at a position is not a peer of the row before it."""
        return changes([self.version, *(w[self.row] for w in self.words)], self.size)

    @cached_property
    def _new_partition(self) -> Bools:
        return changes([self.version], self.size)


def _begins(new: Bools) -> Ints:
    """The begin of the run of every position."""
    starts = np.flatnonzero(new)
    return np.asarray(starts[np.cumsum(new) - 1])


def _ends(new: Bools) -> Ints:
    starts = np.flatnonzero(new)
    return np.asarray(np.append(starts[1:], len(new))[np.cumsum(new) - 1])
