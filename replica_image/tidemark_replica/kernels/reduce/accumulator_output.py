"""The way from sums to output: every touched group is read at every touched time, and its changes are put out.

    group a:   old state ──+ delta at 5──> state ──+ delta at 7──> state          one column of the states each
                   │                         │                       │
                  (a,1)        differ?     (a,2)       differ?     (a,2)
                               (a,1) 5 -1               no: nothing
                               (a,2) 5 +1

A state's output is a row, nothing (an empty group), or an error: a negative count, sums left over in an empty group, an
overflow. Errors are retracted as rows are, so repaired data repair the view.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.columns import canonical, equal_at, take
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints, Updates, make_updates
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import NEGATIVE, NOT_EMPTY, Floating
from tidemark_replica.values.error_text import error_text

_ROWS = "count(*)"


@dataclass(frozen=True, slots=True)
class StateVersions:
    """Successive states of groups: per group the state before the step, then one state per touched time."""

    group: Ints
    time: Ints
    """The time at which each state begins; undefined for states before the step."""
    is_old: Bools


@dataclass(frozen=True, slots=True)
class AccumulatorStates(StateVersions):
    """The sums of every state."""

    sums: Ints
    """(accumulator column, state)"""
    floats: tuple[Floating, ...]
    """The float digits of each aggregate in every state."""


@dataclass(frozen=True, slots=True)
class StateOutput:
    """The output of every state."""

    row: Bools
    error: Ints
    """An index into `errors`; 0: no error. A state in error has no row."""
    errors: list[str | None]
    values: list[Array]


def state_output(states: AccumulatorStates, shape: AccumulatorLayout, always: Bools) -> StateOutput:
    """The output of the states. `always`: states with a row even for an empty group (aggregates without a key)."""
    rows = states.sums[0]
    failures = [(NEGATIVE, _ROWS, rows < 0), (NOT_EMPTY, _ROWS, (rows == 0) & _left_over(states))]
    values = []
    for i, (kept, where) in enumerate(zip(shape.accumulators, shape.columns, strict=True)):
        state, expression = list(states.sums[where.start : where.stop]), shape.aggregates[i].expression
        if state:
            failures.append((NEGATIVE, expression, (state[0] < 0) | (state[0] > rows)))
        reading = kept.read(rows, state, states.floats[i])
        failures += [(code, expression, mask) for code, mask in reading.failures]
        values.append(canonical(reading.values))  # a mean may underflow to -0.0
    error, errors = first_failure(failures, len(rows))
    return StateOutput((error == 0) & (always | (rows > 0)), error, errors, values)


def output_changes(
    states: StateVersions, shown: StateOutput, keys: Sequence[Array], output_types: Sequence[pa.DataType]
) -> Updates:
    """The differences of each state's output to the one before: the old row retracted, the new one added."""
    after = np.flatnonzero(~states.is_old)
    after = after[_differ(shown, after - 1, after)]
    state = np.concatenate([after - 1, after])
    time = np.tile(states.time[after], 2)
    diff = np.repeat(np.array([-1, 1]), len(after))
    row = np.flatnonzero(shown.row[state])
    columns = [*take(keys, states.group[state[row]]), *take(shown.values, state[row])]
    rows = make_updates(columns, time[row], diff[row])
    failing = np.flatnonzero(shown.error[state])
    if len(failing) == 0:
        return rows
    errors = pa.array(shown.errors, pa.string()).take(pa.array(shown.error[state[failing]]))
    nulls = [pa.nulls(len(failing), t) for t in output_types]
    return pa.concat_batches([rows, make_updates(nulls, time[failing], diff[failing], errors)])


def _differ(shown: StateOutput, before: Ints, after: Ints) -> Bools:
    differ = (shown.row[before] != shown.row[after]) | (shown.error[before] != shown.error[after])
    both = np.flatnonzero(~differ & shown.row[after])
    differ[both] = ~equal_at(shown.values, before[both], shown.values, after[both])
    return np.asarray(differ)


def _left_over(states: AccumulatorStates) -> Bools:
    left = states.sums[1:].any(axis=0)
    for floating in chain.from_iterable(states.floats):
        if floating is not None:
            left |= floating.digits.any(axis=0)
    return np.asarray(left)


def first_failure(failures: Sequence[tuple[str, str, Bools]], states: int) -> tuple[Ints, list[str | None]]:
    """The number of the first failure that applies to each state (0: none), and the texts by number.

    `failures`: (code, expression, mask of states).
    """
    error = np.zeros(states, np.int64)
    errors: list[str | None] = [None]
    for code, expression, mask in failures:
        if mask.any():
            error[mask & (error == 0)] = len(errors)
            errors.append(error_text(code, expression))
    return error, errors
