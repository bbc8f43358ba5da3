"""Accumulable reduce and distinct: one row of sums per group.

    out(k) = k ++ sums over in(k), while in(k) is not empty

    (a, 10) 5 +1
    (a, 20) 7 +1     sum by key     (a, 10) 5 +1
    (a, 10) 9 -1     ──────────>    (a, 10) 7 -1, (a, 30) 7 +1
    (a, 20) 9 -1                    (a, 30) 9 -1                     the group is empty: its row is gone

State: one row of accumulators per group and batch, added up by merges; no input rows. Cost of an update: the delta, and
a lookup of each touched group. Without aggregates the kernel is DISTINCT. With aggregates and no key there is always
one row: hydration puts it out (count 0, sum NULL), also before the first input.

Every touched group is read at every touched time; equal outputs cancel. Errs rows of the input pass through. A group in
error (`accumulator_output`) has an errs row in place of its row.
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
"""Rows of sums that are evaluated together."""


@dataclass(frozen=True)
class ReduceSpec:
    """The accumulators, and the arrangement of layout `shape.layout` that holds them."""

    state: ArrangementId
    shape: AccumulatorLayout
    summed: bool = False
    """Whether the input consists of partial sums from an exchange instead of rows."""


def reduce(context: StepContext, spec: ReduceSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the changes of the groups' rows: the key's columns, then one per aggregate.

    Raises MalformedUpdates for another arrangement or other columns; DiffOverflow.
    """
    shape = spec.shape
    if context.manifest(spec.state).layout != shape.layout:
        raise MalformedUpdates(f"arrangement {spec.state} does not hold the state of this reduce")
    runs = StepRuns(context, spec.state)
    types, sums_of = (sums_types(shape), received_sums) if spec.summed else (shape.types, accumulate)
    yield from consume_oks(context, updates, types, shape.output_types, lambda oks: runs.add(sums_of(oks, shape)))
    for _, packed in rechunk(((None, out) for out in _evaluated(context, spec, runs)), context.chunk_rows):
        yield packed
    runs.commit_state()


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
    """A row of zero sums for the only group at the as_of, so that the group is evaluated there."""
    zeros = np.zeros((1, shape.width), np.int64)
    at, slot = np.array([context.lower]), pa.array([0], pa.int32())
    return shape.layout.assemble(key_hashes([], 1), [], at, slot, zeros)
