"""Iterate: any kernel inside a loop, with iterations in the place of times.

    out[i] = kernel(in[i]) for every iteration i, where in[i] has the rows of iterations up to i

Inside a loop a row carries the iteration from which on it is present. For one group, the output at one time is a
function of the group's rows and their iterations. The inner kernel computes it on an empty state when it takes
iterations for times. So each touched group is evaluated twice:

    rows before   (a) i=0 +1             ──kernel──>  (a, 1) i=0 +1                        ┐
    rows now      (a) i=0 +1, i=3 +1     ──kernel──>  (a, 1) i=0 +1, i=3 -1, (a, 2) i=3 +1 ┘  the difference goes on

In a loop inside others a row carries an iteration of each, and is there from all of them on. The iterations of the
innermost loop are times; those of an outer one are taken one after the other:

    (a) i=0 j=0 +1, i=2 j=1 +1      up to i=0:  (a) j=0 +1                 ──kernel──>  what is put out at i=0
                                    up to i=2:  (a) j=0 +1, (a) j=1 +1     ──kernel──>  at i=2, less that of i=0

Below the first iteration that an update changes, both outputs are the same. So the rows from before count from the
iteration just before it on, where those that earlier rounds put in and took back cancel.

State: the input with its iterations, by group. Cost of an update: the groups that a round touches, each read whole.
Errs rows of the input pass through.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.rows.columns import take
from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.task_share import WHOLE_SHARE
from tidemark_replica.arrangement.rows.updates import (
    Bools,
    Ints,
    Updates,
    as_error_rows,
    check_updates,
    diffs,
    errors,
    make_updates,
    rechunk,
    row_columns,
    split_errors,
    times,
)
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows

RANGE_ROWS = 1 << 16
"""Rows of a round that are evaluated together."""

END = 2**62
"""A time above every iteration."""

Run = Callable[[StepContext, Any, Iterable[Updates]], Iterator[Updates]]


@dataclass(frozen=True)
class IterateSpec:
    """An inner kernel's spec, and an arrangement of its input that replaces its own state (`inner_layouts`)."""

    state: ArrangementId
    types: tuple[pa.DataType, ...]
    """The column types of the inner kernel's input; this kernel's input has iterations as more columns."""
    key: tuple[int, ...]
    inner: Any
    inner_layouts: tuple[tuple[ArrangementId, Layout], ...]
    loops: int = 1
    """The number of iterations that a row carries, the innermost loop's last."""

    @property
    def layout(self) -> Layout:
        """The arrangement of the input: by group, with its iterations."""
        return Layout.of_rows((*self.types, *[pa.int64()] * self.loops), self.key)


def iterate(context: StepContext, spec: IterateSpec, updates: Iterable[Updates], run: Run) -> Iterator[Updates]:
    """Yield the inner kernel's output, with the iterations as its last columns; `run` is the inner kernel."""
    runs = StepRuns(context, spec.state)
    inner = _Inner(context, spec, run)
    for _, chunk in rechunk(((None, u) for u in updates), context.chunk_rows):
        check_updates(chunk, spec.layout.types, context.lower, context.upper)
        oks, errs = split_errors(chunk)
        if errs.num_rows:
            yield inner.pass_on(errs)
        if oks.num_rows:
            runs.add(sorted_rows(consolidate(oks), spec.layout))
    yield from _evaluated(context, spec, runs, inner)
    runs.commit_state()


def _evaluated(context: StepContext, spec: IterateSpec, runs: StepRuns, inner: "_Inner") -> Iterator[Updates]:
    ranges = runs.consolidated(RANGE_ROWS)
    if context.is_hydration:  # an aggregate without a key has a row also for an empty input
        empty = pa.RecordBatch.from_pylist([], schema=spec.layout.schema)
        ranges = chain([next(ranges, empty)], ranges)
    for rows in ranges:
        before, now = _contents(context, spec, rows)
        # At hydration nothing has been put out yet, not even that row.
        changed = inner.difference(None if context.is_hydration else before, now)
        if changed.num_rows:
            yield changed


@dataclass(frozen=True)
class _Contents:
    """Rows with their iterations, and the hashes of their groups."""

    rows: Updates
    hashes: Any

    def filter(self, which: Bools) -> "_Contents":
        """The contents of the chosen rows."""
        return _Contents(self.rows.filter(pa.array(which)), self.hashes[which])


def _contents(context: StepContext, spec: IterateSpec, rows: Any) -> tuple[_Contents, _Contents]:
    """The contents of the groups in `rows` (a round's, ascending by hash), before the round and with it."""
    layout = spec.layout
    columns = [rows.column(1 + k) for k in layout.key]
    hashes = file_hashes(rows)
    groups = group_rows(hashes, columns)
    keys = Keys.sorted(hashes[groups.first], take(columns, groups.first))
    first = [
        np.minimum.reduceat(_ints(rows.column(column))[groups.order], groups.starts)
        for column in _iteration_columns(spec)
    ]
    stored = [_since(hits.stored, hits.delta, first, spec) for hits in context.trace(spec.state).probe(keys)]
    before = pa.concat_batches([rows.slice(0, 0), *stored])
    return _as_contents(before, layout), _as_contents(pa.concat_batches([before, rows]), layout)


def _since(stored: Any, groups: Ints, first: Sequence[Ints], spec: IterateSpec) -> Any:
    """Stored rows of these groups, from the iterations just before the first ones that change."""
    columns = stored.columns
    for column, begin in zip(_iteration_columns(spec), first, strict=True):
        columns[column] = pa.array(np.maximum(_ints(columns[column]), begin[groups] - 1))
    return pa.RecordBatch.from_arrays(columns, schema=stored.schema)


def _iteration_columns(spec: IterateSpec) -> range:
    """The places of the iterations in a file's rows, behind the hash."""
    return range(1 + len(spec.types), 1 + len(spec.types) + spec.loops)


def _ints(column: Any) -> Ints:
    return np.asarray(column.to_numpy())


def _as_contents(rows: Any, layout: Layout) -> _Contents:
    weights = np.asarray(rows.column(layout.weights[0]).to_numpy())
    updates = make_updates(rows.columns[1 : layout.time], np.zeros(len(weights), np.int64), weights)
    return _Contents(updates, file_hashes(rows))


class _Inner:
    """The inner kernel, run on an empty state each time. The files that it writes are deleted at once."""

    def __init__(self, context: StepContext, spec: IterateSpec, run: Run) -> None:
        self._context, self._spec, self._run = context, spec, run
        self._manifests = {a: Manifest.empty(a, layout, 0) for a, layout in spec.inner_layouts}

    def pass_on(self, errs: Updates) -> Updates:
        """Errs rows with the columns of the inner kernel's output."""
        made = pa.concat_batches(list(self._run_inner(as_error_rows(errs, self._spec.types))))
        outer = (0,) * (self._spec.loops - 1)
        return self._at_this_time(_with_iterations(split_errors(made)[1], outer))

    def difference(self, before: _Contents | None, now: _Contents) -> Updates:
        """The output for `now` minus the output for `before`."""
        made = list(self._output(now, self._spec.loops - 1, ()))
        made += map(_negated, self._output(before, self._spec.loops - 1, ()) if before is not None else ())
        if not made:
            return make_updates([], np.empty(0, np.int64), np.empty(0, np.int64))
        return self._at_this_time(consolidate(pa.concat_batches(made)))

    def _output(self, rows: _Contents, outer: int, iterations: tuple[int, ...]) -> Iterator[Updates]:
        """The output at all iterations of `outer` loops more and of the innermost, which is the time.

        The rows' iterations of further loops have been taken; `iterations` are those of the output.
        """
        if not outer:
            yield from (
                _with_iterations(batch, iterations) for batch in self._run_inner(_by_iteration(rows.rows, self._spec))
            )
            return
        column = len(self._spec.types) + self._spec.loops - 1 - outer
        at: Ints = np.asarray(row_columns(rows.rows)[column].to_numpy())
        for iteration in sorted({0, *np.unique(at).tolist()}):
            # From iteration 0 on there is a row of an aggregate without a key, and nothing before.
            touched = rows.filter(np.isin(rows.hashes, rows.hashes[at == iteration]) if iteration else at == 0)
            since: Ints = np.asarray(row_columns(touched.rows)[column].to_numpy())
            yield from self._output(touched.filter(since <= iteration), outer - 1, (*iterations, iteration))
            if iteration:
                before = self._output(touched.filter(since < iteration), outer - 1, (*iterations, iteration))
                yield from map(_negated, before)

    def _run_inner(self, updates: Updates) -> Iterator[Updates]:
        """The output of the inner kernel, run over these updates alone. Its arrangements are discarded."""
        context = self._context
        writer = context.writer.detached()
        inner = replace(context, lower=0, upper=END, until=None, is_hydration=True, share=WHOLE_SHARE)
        inner = replace(inner, manifests=self._manifests, writer=writer)
        yield from self._run(inner, self._spec.inner, [updates])
        for refs in writer.written.values():
            for ref in refs:
                writer.discard(ref)

    def _at_this_time(self, output: Updates) -> Updates:
        """Turn the inner kernel's times into the last column of iterations."""
        errs = errors(output)
        iteration = pa.array(times(output), mask=np.asarray(errs.is_valid()))
        now = np.full(output.num_rows, self._context.lower)
        return make_updates([*row_columns(output), iteration], now, diffs(output), errs)


def _by_iteration(updates: Updates, spec: IterateSpec) -> Updates:
    columns = row_columns(updates)
    at: Ints = np.asarray(columns[-1].to_numpy())
    return make_updates(columns[: len(spec.types)], at, diffs(updates))


def _with_iterations(updates: Updates, iterations: tuple[int, ...]) -> Updates:
    """The rows with these iterations behind them; errs rows have none."""
    if not iterations:
        return updates
    errs = errors(updates)
    failed = np.asarray(errs.is_valid())
    columns = [pa.array(np.full(len(failed), i), mask=failed) for i in iterations]
    return make_updates([*row_columns(updates), *columns], times(updates), diffs(updates), errs)


def _negated(updates: Updates) -> Updates:
    return make_updates(row_columns(updates), times(updates), -diffs(updates), errors(updates))
