"""Rows of a reduce as a join finds them: in the reduce's state, where an arrangement of the rows would be a copy.

    key ──probe──> sums before the step ──> the group's row ──what is computed of it──> a row of the join's side
                                              └ an empty group, or one in error: none

The state has one group for each key, so a key finds one row at most, of multiplicity 1. The rows are those before the
step. The step's own changes come as the reduce's output, each with its time; `join` meets them as it meets those of any
side. So no state inside of the step is computed twice.

Cost of a key: its sums, as for the reduce itself, and what is computed of the group's row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.arrangement.batches.key_lookup import Hits, Keys
from tidemark_replica.arrangement.errors import OutOfFrontier
from tidemark_replica.arrangement.rows.columns import take
from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Updates, make_updates, row_columns, split_errors, times
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.accumulator_output import state_output
from tidemark_replica.kernels.reduce.accumulator_states import stored_states

RANGE_GROUPS = 1 << 16
"""Groups that are evaluated together."""

Evaluation = Callable[[MapFilterProject], Callable[[Updates], Updates]]


@dataclass(frozen=True)
class GroupRows:
    """The rows of a reduce with a key, as a side of a join has them."""

    shape: AccumulatorLayout
    computed: tuple[MapFilterProject | tuple[int, ...], ...]
    """The way from key ++ aggregates to the side's rows: what is computed, or the columns that are chosen, one after
    another. No column of the key is lost."""
    layout: Layout
    """The side's rows, by the key of the groups."""


class StoredGroups:
    """The groups of a reduce as its state has them before the step."""

    def __init__(self, context: StepContext, state: ArrangementId, rows: GroupRows, evaluation: Evaluation) -> None:
        """Raises OutOfFrontier if the state holds this step's updates."""
        manifest = context.manifest(state)
        if manifest.upper > context.lower and manifest.batches:
            raise OutOfFrontier(
                f"a join over [{context.lower}, {context.limit}) reads the groups of {state} before the step, whose "
                f"state is complete up to {manifest.upper}"
            )
        self._trace, self._rows = context.trace(state), rows
        self._computed = [c if isinstance(c, tuple) else evaluation(c) for c in rows.computed]

    def probe(self, keys: Keys, columns: Sequence[int], slice_rows: int) -> Iterator[Hits]:
        """Yield the rows of the keys, with these file positions of their layout; NULL matches NULL."""
        if not self._trace.manifest.batches or not len(keys.hashes):
            return
        groups = group_rows(keys.hashes, keys.columns)
        group_of_key = groups.ids()
        for begin in range(0, len(groups.starts), RANGE_GROUPS):
            first = groups.first[begin : begin + RANGE_GROUPS]
            rows, group = self._evaluated(Keys(keys.hashes[first], take(keys.columns, first), first))
            place = np.full(len(first), -1, np.int64)
            place[group] = np.arange(len(group))
            inside = np.flatnonzero((group_of_key >= begin) & (group_of_key < begin + len(first)))
            found = place[group_of_key[inside] - begin]
            hit = found >= 0
            delta, stored = keys.rows[inside[hit]], found[hit]
            chosen = rows.select(list(columns))
            for at in range(0, len(delta), slice_rows):
                yield Hits(delta[at : at + slice_rows], chosen.take(pa.array(stored[at : at + slice_rows])))

    def _evaluated(self, keys: Keys) -> tuple[Any, Any]:
        """The rows of the groups that have one, as a file has them, and the number of the group of each."""
        shape, layout = self._rows.shape, self._rows.layout
        states = stored_states(keys, shape, self._trace)
        shown = state_output(states, shape, np.zeros(len(keys.hashes), np.bool_))
        there = np.flatnonzero(shown.row)
        # The number of the group goes through what is computed in the place of the time, which nothing there reads.
        rows = make_updates([*take(keys.columns, there), *take(shown.values, there)], there, np.ones_like(there))
        for computed in self._computed:
            if isinstance(computed, tuple):
                row = row_columns(rows)
                rows = make_updates([row[c] for c in computed], times(rows), np.ones(rows.num_rows, np.int64))
            else:
                rows, _ = split_errors(computed(rows))
        row, group = row_columns(rows), times(rows)
        at, none = np.zeros(rows.num_rows, np.int64), pa.nulls(rows.num_rows, pa.string())
        hashes = key_hashes([], rows.num_rows)
        return layout.assemble(hashes, row, at, none, np.ones(rows.num_rows, np.int64)), group
