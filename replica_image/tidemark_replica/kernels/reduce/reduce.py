"""Accumulable reduce and distinct: one output row per group, kept right at every time.

    (a, 10) 5 +1
    (a, 20) 7 +1     sum by key     (a, 10) 5 +1
    (a, 10) 9 -1     ──────────>    (a, 10) 7 -1, (a, 30) 7 +1
    (a, 20) 9 -1                    (a, 30) 9 -1                     the group is empty: its row is gone

State: one row of accumulators per group and batch, summed up by merges; no input rows. Cost: the delta, and a look-up
of the groups it touches. Without aggregates the kernel is DISTINCT. With aggregates and no key there is always one row,
also before the first input: hydration emits it (count 0, sum NULL).

Every touched group is read at every touched time; a change that nobody could see emits nothing. Errs rows of the input
pass through. A group in error (see `evaluate`) shows an errs row instead of its row, for as long as it is in error.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.errors import MalformedUpdates
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.updates import Updates, rechunk
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.kernel_input import consume_oks
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout, accumulate
from tidemark_replica.kernels.reduce.accumulator_output import output_changes, state_output
from tidemark_replica.kernels.reduce.accumulator_states import accumulator_states
from tidemark_replica.kernels.reduce.partial_sums import received_sums, sums_types

RANGE_ROWS = 1 << 16
"""How many rows of sums are evaluated at a time."""


@dataclass(frozen=True)
class ReduceSpec:
    """What to compute, and the arrangement (of layout `shape.layout`) that holds its state."""

    state: ArrangementId
    shape: AccumulatorLayout
    summed: bool = False
    """Whether the input has rows of state, summed up before an exchange, in the place of rows."""


def reduce(context: StepContext, spec: ReduceSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Aggregate; the output's columns are the key's, then one per aggregate."""
    shape = spec.shape
    if context.manifest(spec.state).layout != shape.layout:
        raise MalformedUpdates(f"arrangement {spec.state} does not hold the state of this reduce")
    runs = StepRuns(context, spec.state)
    types, sums_of = (sums_types(shape), received_sums) if spec.summed else (shape.types, accumulate)
    yield from consume_oks(context, updates, types, shape.output_types, lambda oks: runs.add(sums_of(oks, shape)))
    for _, packed in rechunk(((None, out) for out in _evaluated(context, spec, runs)), context.chunk_rows):
        yield packed
    runs.commit()


def _evaluated(context: StepContext, spec: ReduceSpec, runs: StepRuns) -> Iterator[Updates]:
    shape = spec.shape
    always = not shape.key and bool(shape.aggregates)
    ranges = runs.consolidated(RANGE_ROWS)
    if always and context.is_hydration and context.has_the_only_group:
        ranges = iter([pa.concat_batches([_touch(context, shape), *ranges])])
    for rows in ranges:
        states, keys = accumulator_states(rows, shape, context.trace(spec.state))
        exists = np.full(len(states.is_old), always)
        if context.is_hydration:
            exists &= ~states.is_old
        yield output_changes(states, state_output(states, shape, exists), keys, shape.output_types)


def _touch(context: StepContext, shape: AccumulatorLayout) -> Any:
    """A row that adds nothing to the only group, at the as_of: so that it is evaluated there."""
    zeros = np.zeros((1, shape.width), np.int64)
    at, slot = np.array([context.lower]), pa.array([0], pa.int32())
    return shape.layout.assemble(key_hashes([], 1), [], at, slot, zeros)
