"""Min and max: one row per group with its least or greatest values.

    out(k) = k ++ min or max over in(k)

    (a, 3) 5 +1                 (a, 3) 5 +1
    (a, 1) 7 +1     min         (a, 3) 7 -1, (a, 1) 7 +1
    (a, 1) 9 -1     ───>        (a, 1) 9 -1, (a, 3) 9 +1

State: per value and direction, the rows (key, value), sorted by value, NULL last. The first row of a group is then its
answer. min(x) and max(x) keep x twice; several minima of one value share one state. Cost of an update: per touched
group about two rows of every batch, O(log n) batches; more only where retractions have removed first rows. The size of
a group does not matter, not even at hydration.

A FILTER turns the value into NULL, which min and max ignore. Without a key there is always one row: hydration puts it
out, NULL, also before the first input.

A negative multiplicity before the answer, or of the answer, is an error of the group: an errs row replaces its row.
Errs rows of the input pass through.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.updates import (
    Array,
    Bools,
    Ints,
    Updates,
    as_error_rows,
    diffs,
    make_updates,
    rechunk,
    row_columns,
    times,
)
from tidemark_replica.arrangement.spines.first_rows_reader import RankedRows, touched_keys
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.kernel_input import consume_oks
from tidemark_replica.kernels.ranking.first_rows import groups_per_read, read_first_rows
from tidemark_replica.kernels.ranking.rank_positions import RankPositions, any_in_group, rank_positions, touched_times
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state import RankingState, RankingStateSpec, open_state
from tidemark_replica.kernels.reduce.accumulator_output import StateOutput, StateVersions, first_failure, output_changes
from tidemark_replica.kernels.reduce.aggregates import NEGATIVE

_ROWS = "count(*)"


@dataclass(frozen=True)
class SortedValue:
    """The value that a state is sorted by: a column of the rows where the boolean column `filter` is true."""

    argument: int
    greatest: bool
    filter: int | None = None


@dataclass(frozen=True)
class Extreme:
    """One min or max; `expression` is the SQL text that error rows show."""

    value: SortedValue
    expression: str


@dataclass(frozen=True)
class ExtremesShape:
    """The extremes of a stream with columns of `types`, grouped by `key`."""

    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    extremes: tuple[Extreme, ...]

    @cached_property
    def values(self) -> tuple[SortedValue, ...]:
        """The distinct values, each of which needs a state."""
        return tuple(dict.fromkeys(e.value for e in self.extremes))

    def ranking(self, value: SortedValue) -> Ranking:
        """The ranking of rows (key, value) whose first row per group is the extreme."""
        width = len(self.key)
        order = OrderKey(width, descending=value.greatest, nulls_last=True)
        return Ranking((*self.key_types, self.types[value.argument]), tuple(range(width)), (order,), 0, 1)

    @property
    def key_types(self) -> tuple[pa.DataType, ...]:
        return tuple(self.types[k] for k in self.key)

    @property
    def output_types(self) -> tuple[pa.DataType, ...]:
        return (*self.key_types, *(self.types[e.value.argument] for e in self.extremes))


@dataclass(frozen=True)
class ExtremesSpec:
    """The extremes, and a state for each of `of.values`."""

    of: ExtremesShape
    states: tuple[RankingStateSpec, ...]


def extremes(context: StepContext, spec: ExtremesSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the changes of key ++ extremes."""
    of = spec.of
    states = [open_state(context, s, of.ranking(v)) for s, v in zip(spec.states, of.values, strict=True)]

    def add(oks: Updates) -> None:
        for each, value in zip(states, of.values, strict=True):
            each.add(_keys_and_values(oks, of, value))

    yield from consume_oks(context, updates, of.types, of.output_types, add)
    for each in states:
        for errs in each.finish():
            yield as_error_rows(errs, of.output_types)
    changed = ((None, each) for each in _changes(context, spec, states))
    for _, packed in rechunk(changed, context.chunk_rows):
        yield packed
    for each in states:
        each.commit()


def _keys_and_values(oks: Updates, of: ExtremesShape, value: SortedValue) -> Updates:
    columns = row_columns(oks)
    chosen = columns[value.argument]
    if value.filter is not None:
        chosen = pc.if_else(pc.fill_null(columns[value.filter], False), chosen, pa.scalar(None, chosen.type))
    return make_updates([*(columns[k] for k in of.key), chosen], times(oks), diffs(oks))


def _changes(context: StepContext, spec: ExtremesSpec, states: Sequence[RankingState]) -> Iterator[Updates]:
    rankings = [spec.of.ranking(v) for v in spec.of.values]
    steps = [each.segments() for each in states]
    everything = [segment for step in steps for segment in step]
    arranged = sum(len(context.manifest(s.arrangement).batches) for s in spec.states)
    groups = touched_keys(everything, rankings[0].layout, groups_per_read(everything, arranged, 1))
    if not spec.of.key and context.is_hydration and context.has_the_only_group:
        groups = iter([Keys.sorted(key_hashes([], 1), [])])
    for keys in groups:
        ranked = [
            read_first_rows(context, state.arrangement, step, ranking, keys)
            for state, step, ranking in zip(spec.states, steps, rankings, strict=True)
        ]
        for each, first in zip(states, ranked, strict=True):
            each.accept(first)
        yield from _of_groups(context, spec.of, ranked, keys)


@dataclass(frozen=True, slots=True)
class _FirstEntries:
    """(group, time): the first entry, -1 for none, and whether a negative multiplicity comes before it."""

    ranked: RankedRows
    entry: Ints
    negative: Bools

    @staticmethod
    def of(ranked: RankedRows, at: RankPositions) -> "_FirstEntries":
        entry = np.full((ranked.groups, at.multiplicity.shape[1]), -1)
        here, moment = np.nonzero((at.multiplicity > 0) & (at.before == 0))
        entry[ranked.group[here], moment] = here
        wrong = (at.multiplicity < 0) & (at.before == 0)
        return _FirstEntries(ranked, entry, any_in_group(wrong, ranked.group, ranked.groups))

    def values(self) -> Array:
        """The values by group, then time; NULL where there is no entry."""
        entry = self.entry.ravel()
        rows = np.append(self.ranked.first, 0)[entry]
        return self.ranked.columns[-1].take(pa.array(rows, mask=entry < 0))


def _of_groups(context: StepContext, of: ExtremesShape, ranked: Sequence[RankedRows], keys: Keys) -> Iterator[Updates]:
    times = np.unique(np.concatenate([touched_times(r, context.lower) for r in ranked]))
    begins = context.is_hydration
    for at in zip(*(rank_positions(r, times) for r in ranked), strict=True):
        firsts = [_FirstEntries.of(r, p) for r, p in zip(ranked, at, strict=True)]
        states = _succession(at[0].times, len(keys.hashes))
        exists = firsts[0].entry.ravel() >= 0
        failures = [(NEGATIVE, e.expression, firsts[of.values.index(e.value)].negative.ravel()) for e in of.extremes]
        failures += [(NEGATIVE, _ROWS, (f.entry.ravel() >= 0) != exists) for f in firsts[1:]]
        error, errors = first_failure(failures, len(exists))
        if not of.key:
            exists = exists | ~(states.is_old & begins)
        values = [f.values() for f in firsts]
        shown = StateOutput(
            exists & (error == 0), error, errors, [values[of.values.index(e.value)] for e in of.extremes]
        )
        yield output_changes(states, shown, keys.columns, of.output_types)
        begins = False


def _succession(times: Ints, groups: int) -> StateVersions:
    """The state versions of groups: one before the times, and one at each of them."""
    columns = 1 + len(times)
    return StateVersions(
        np.repeat(np.arange(groups), columns),
        np.tile(np.append(0, times), groups),
        np.tile(np.arange(columns) == 0, groups),
    )
