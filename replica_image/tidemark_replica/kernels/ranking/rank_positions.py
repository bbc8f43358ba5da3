"""Rank positions: the multiplicities of ranked rows at each time of a step, and the positions that they take.

    entry        before    5   7        offset 1 and limit 2: the positions 1 and 2, counted from 0
    (a, 1)            1   0   0
    (a, 4)            1   1   3        ──>   before: (a, 4) and one of (a, 6); from 5 on: two of (a, 6), ...
    (a, 6)            2   2   2

A row of multiplicity n takes n positions, and is visible as often as they lie in [offset, offset + limit). A row with a
negative multiplicity takes none. Its group is in error if the row stands before the last position.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidemark_replica.arrangement.errors import DiffOverflow
from tidemark_replica.arrangement.rows.updates import Bools, Ints
from tidemark_replica.arrangement.spines.first_rows_reader import RankedRows, ReadExtent

TIMES_AT_ONCE = 16
"""The number of times that are computed together."""


@dataclass(frozen=True, slots=True)
class RankPositions:
    """Arrays of (entry, time): column 0 is before the first of `times`, then one column per time."""

    times: Ints
    multiplicity: Ints
    upto: Ints
    """Positions that the group's entries take up to this entry, itself included."""

    @property
    def before(self) -> Ints:
        """Positions that the group's entries take before this entry."""
        return self.upto - np.maximum(self.multiplicity, 0)

    def visible(self, offset: int, end: int) -> Ints:
        """The number of each entry's positions that lie in [offset, end), counted from 0."""
        return np.clip(self.upto, offset, end) - np.clip(self.before, offset, end)


def touched_times(ranked: RankedRows, lower: int) -> Ints:
    """The step's first time, and every later time at which an entry changes, ascending."""
    return np.unique(np.append(ranked.times[ranked.times > lower], lower))


def rank_positions(ranked: RankedRows, times: Ints) -> Iterator[RankPositions]:
    """The positions at all times, TIMES_AT_ONCE times per result; column 0 of a result is the end of the one before."""
    for at in range(0, len(times), TIMES_AT_ONCE):
        yield _rank_positions(ranked, times[at : at + TIMES_AT_ONCE])


def is_certain(ranked: RankedRows, lower: int, end: int) -> Bools:
    """Whether, for each group, enough rows were read to know all positions before `end`, at every time."""
    result = np.ones(ranked.groups, np.bool_)
    for i, at in enumerate(rank_positions(ranked, touched_times(ranked, lower))):
        result &= ranked.with_step.complete | (_certain_upto(at.upto[:, 1:], ranked, ranked.with_step) >= end).all(
            axis=1
        )
        if i == 0:
            result &= ranked.before.complete | (_certain_upto(at.upto[:, :1], ranked, ranked.before) >= end).all(axis=1)
    return result


def _certain_upto(upto: Ints, ranked: RankedRows, certain: ReadExtent) -> Ints:
    """The positions that entries before its horizon take, for each group."""
    groups = np.arange(ranked.groups)
    ends = np.minimum(certain.horizon, np.searchsorted(ranked.group, groups, "right"))
    some = np.flatnonzero(ends > np.searchsorted(ranked.group, groups))
    result = np.zeros((ranked.groups, upto.shape[1]), np.int64)
    result[some] = upto[ends[some] - 1]
    return result


def _group_begins(group: Ints) -> Ints:
    """The first entry of each group; entries ascend by group."""
    return np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])


def differences(values: Ints) -> Ints:
    """The difference of each column to the one before it."""
    return values[:, 1:] - values[:, :-1]


def any_in_group(mask: Bools, group: Ints, groups: int) -> Bools:
    """Whether, for each group and column, the mask holds in one of the group's entries."""
    result = np.zeros((groups, mask.shape[1]), np.bool_)
    if len(group):
        begins = _group_begins(group)
        result[group[begins]] = np.logical_or.reduceat(mask, begins, axis=0)
    return result


def _rank_positions(ranked: RankedRows, times: Ints) -> RankPositions:
    entries = len(ranked.group)
    column = np.where(ranked.times < times[0], 0, np.searchsorted(times, ranked.times) + 1)
    with_step = np.flatnonzero(column <= len(times))
    if float(np.abs(ranked.diffs.astype(np.float64)).sum()) >= 2.0**62:
        raise DiffOverflow("the multiplicities of the rows of some groups add up to more than 62 bits")
    multiplicity = np.zeros((entries, len(times) + 1), np.int64)
    np.add.at(multiplicity, (ranked.entry[with_step], column[with_step]), ranked.diffs[with_step])
    np.cumsum(multiplicity, axis=1, out=multiplicity)
    upto = np.cumsum(np.maximum(multiplicity, 0), axis=0)
    begins = _group_begins(ranked.group)
    base = np.zeros((len(begins), len(times) + 1), np.int64)
    base[1:] = upto[begins[1:] - 1]
    return RankPositions(times, multiplicity, upto - np.repeat(base, np.diff(np.append(begins, entries)), axis=0))
