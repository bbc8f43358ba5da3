"""Threshold: the rows of positive multiplicity.

    out(row) = max(0, in(row))

    (a) 5 +2                                  (a) 5 +2
    (b) 5 -1          multiplicity > 0        (a) 7 -2         a multiplicity of -1, or of 0, shows nothing
    (a) 7 -3          ───────────────>        (a) 9 +1
    (a) 9 +2

State: one count per row. Cost of an update: the delta, and a lookup of its rows.

A negative multiplicity is no error here: EXCEPT ALL is left minus right, and this operator drops what is negative in
it. Errs rows of the input pass through.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.errors import MalformedUpdates
from tidemark_replica.arrangement.rows.columns import take
from tidemark_replica.arrangement.rows.updates import Array, Updates, make_updates
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.kernel_input import consume_oks
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout, accumulate
from tidemark_replica.kernels.reduce.accumulator_output import AccumulatorStates
from tidemark_replica.kernels.reduce.accumulator_states import accumulator_states

RANGE_ROWS = 1 << 16
"""Rows of counts that are evaluated together."""


@dataclass(frozen=True)
class ThresholdSpec:
    """The input's column types, and the arrangement of layout `counts_of(types).layout` with the counts."""

    state: ArrangementId
    types: tuple[pa.DataType, ...]

    @cached_property
    def shape(self) -> AccumulatorLayout:
        return counts_of(self.types)


def counts_of(types: tuple[pa.DataType, ...]) -> AccumulatorLayout:
    """The accumulators of the state: a count per distinct row."""
    return AccumulatorLayout(types, tuple(range(len(types))), ())


def threshold(context: StepContext, spec: ThresholdSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the changes of the rows with positive multiplicity. Raises MalformedUpdates for another arrangement."""
    if context.manifest(spec.state).layout != spec.shape.layout:
        raise MalformedUpdates(f"arrangement {spec.state} does not hold the state of this threshold")
    runs = StepRuns(context, spec.state)
    yield from consume_oks(context, updates, spec.types, spec.types, lambda oks: runs.add(accumulate(oks, spec.shape)))
    for rows in runs.consolidated(RANGE_ROWS):
        changed = _changes(*accumulator_states(rows, spec.shape, context.trace(spec.state)))
        if changed.num_rows:
            yield changed
    runs.commit_state()


def _changes(states: AccumulatorStates, rows: list[Array]) -> Updates:
    """The change of each row's positive multiplicity from each state to the next."""
    positive = np.maximum(states.sums[0], 0)
    after = np.flatnonzero(~states.is_old)
    diff = positive[after] - positive[after - 1]
    after, diff = after[diff != 0], diff[diff != 0]
    return make_updates(take(rows, states.group[after]), states.time[after], diff)
