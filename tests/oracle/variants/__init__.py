"""Other ways through the same history, which must not show. `VARIANTS` has them all; a new one is a line there.

catalyst     every expression is Catalyst's                 the same updates
compacted    an index that lets go of all but the last      the same updates; the index reads the same where it can
             time after each step
restarted    dropped in the middle, built anew              at its as_of the contents, from there on the same updates
in pieces    rows of a step in another order, three at a    the same updates
             time, through chunks of three rows
in a worker  no Spark job at all where the evaluator knows  the same updates
             every expression, hydration included
now and then steps of few updates in a worker, of more as   the same updates
             jobs
exchanged    every step in eight tasks                      the same updates
by turns     large steps in three tasks, small ones in one  the same updates
narrowed     steps of at most so many rows, or one time;    at its as_of the contents, from there on the same updates
             dropped in the middle, built anew
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tests.checked_patches import CheckedPatches
from tests.oracle.harness import INDEX, SINK, DataflowHarness, Updates, consolidated, contents, counted, delta
from tests.oracle.variants.execution_location import check_workers, in_jobs
from tests.step_worker.shared import step_workers
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.execution import prepare
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.plan.pipeline import Pipeline, Source
from tidemark_replica.render.stepped_dataflow import Step
from tidemark_replica.render.task.jvm_input_slots import StageFeed
from tidemark_replica.render.task.stage import Stage

TASKS, PIECE, FEW, LARGE = 8, 3, 8, 30
Variant = Callable[[DataflowHarness, DataflowDescription, Sequence[int]], tuple[int, Updates]]
"""(the harness, the dataflow, uppers of steps) to (from when on, the updates)."""


def built(**how: Any) -> Variant:
    """Steps of a dataflow that is built in a way of its own."""

    def run(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
        return of.history.as_of, of.run(description, bounds, **how)

    return run


def compacted(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
    """Steps after each of which the index lets go of all but the last time; it is read there every time."""
    dataflow = of.build(description)
    made: Updates = Counter()
    try:
        for upper in bounds:
            outcome = of.step(dataflow, upper)
            made.update(delta(outcome, SINK))
            outcome.release()
            dataflow.compact(INDEX, Frontier.at(upper - 1))
            of.store.sweep(())
            assert read_index(of, dataflow, upper - 1) == contents(made, upper - 1)
    finally:
        dataflow.drop()
    return of.history.as_of, consolidated(made)


def restarted(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
    """Steps up to about the middle, then another dataflow that begins there: its as_of and its updates."""
    middle = bounds[(len(bounds) - 1) // 2] - 1
    first = of.build(description)
    of.step(first, middle + 1).release()
    first.drop()
    of.store.sweep(())
    again = description.with_as_of(Frontier.at(middle))
    return middle, of.run(again, [upper for upper in bounds if upper > middle + 1] or [middle + 1])


def narrowed(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
    """Everything has come before the first step; steps take as many rows as a random bound allows, begun anew."""
    middle = bounds[(len(bounds) - 1) // 2] - 1
    _narrowed(of, description, middle + 1)
    return middle, _narrowed(of, description.with_as_of(Frontier.at(middle)), max(bounds[-1], middle + 1))


def _narrowed(of: DataflowHarness, description: DataflowDescription, end: int) -> Updates:
    """The sink's updates up to `end`, in steps of 1 row, or of random numbers of rows."""
    random = np.random.default_rng(end)
    dataflow, made = of.build(description), Counter[Any]()
    try:
        while (lower := dataflow.frontier) < Frontier.at(end):
            rows = int(random.choice([1, 1, 2, 5, 20]))
            outcome = of.step(dataflow, end, rows)
            check_narrow(of, outcome.step, rows)
            assert dataflow.frontier > lower
            made.update(delta(outcome, SINK))
            outcome.release()
    finally:
        dataflow.drop()
    return consolidated(made)


def check_narrow(of: DataflowHarness, step: Step, rows: int) -> None:
    """The step reads at most so many updates, or those of one time; a hydration reads earlier ones at its as_of."""
    times = [at for changes in of.history.changes.values() for _, at, _ in changes if at < step.limit]
    within = [max(at, step.lower) for at in times if step.hydrates or at >= step.lower]
    assert len(set(within)) <= 1 or len(within) <= rows, f"{len(within)} updates in a step of at most {rows}"


def in_pieces(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
    """Rows come in another order, few at a time, and kernels keep few at a time."""
    with staged(run_in_pieces):
        return of.history.as_of, of.run(description, bounds)


def in_worker(max_rows: float) -> Variant:
    """Work of at most so many updates runs in a step worker, and none of it as a job."""

    def run(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
        with in_jobs() as jobs:
            made = built(workers=step_workers(), max_rows=max_rows)(of, description, bounds)
        check_workers(jobs, max_rows)
        return made

    return run


def exchange_policy(tasks: int, from_rows: int) -> Variant:
    """Work of so many updates and more runs in several tasks, but what has an operator that is in one place."""

    def run(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
        with in_jobs() as jobs:
            made = built(exchange_policy=ExchangePolicy(tasks, from_rows))(of, description, bounds)
        for job in jobs:
            wanted = job.shapes(tasks if job.work.input_rows >= from_rows else 1)
            assert job.tasks in wanted, f"{job.work.label}: of {job.work.input_rows} updates, in {job.tasks} tasks"
        return made

    return run


VARIANTS: Mapping[str, Variant] = {
    "catalyst": built(arrow=False),
    "compacted": compacted,
    "restarted": restarted,
    "in pieces": in_pieces,
    "in a worker": in_worker(math.inf),
    "now and then": in_worker(FEW),
    "exchanged": exchange_policy(TASKS, from_rows=0),
    "by turns": exchange_policy(3, from_rows=LARGE),
    "narrowed": narrowed,
}


@contextmanager
def staged(run_stage: Callable[..., Iterator[Any]]) -> Iterator[None]:
    """Dataflows that are built in the block run their stages by another function."""
    with CheckedPatches.context() as patch:
        patch.setattr(prepare, "run_stage", run_stage)
        yield


class PiecewiseStage(Stage):
    """A stage that is given its rows in another order, and takes few at a time."""

    def evaluate(self, tree: Pipeline) -> Iterator[Any]:
        self._context = replace(self._context, chunk_rows=PIECE)
        batches = super().evaluate(tree)
        return shuffled(batches) if isinstance(tree, Source) else batches


def run_in_pieces(name: str, tree: Pipeline, feed: StageFeed, rows: Iterable[Any]) -> Iterator[Any]:
    """In the place of `stage.run_stage`."""
    stage = PiecewiseStage.in_task(feed, rows)
    yield from stage.evaluate(tree)
    stage.report(name)


def shuffled(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows, in pieces."""
    whole = list(batches)
    if whole:
        rows = pa.concat_batches(whole)
        order = np.random.default_rng(rows.num_rows).permutation(rows.num_rows)
        for begin in range(0, rows.num_rows, PIECE):
            yield rows.take(pa.array(order[begin : begin + PIECE]))


def read_index(
    of: DataflowHarness, dataflow: RenderedDataflow, time: int
) -> tuple[Counter[tuple[object, ...]], Counter[str]]:
    """The rows and errors that the index holds at a time."""
    trace = Trace(dataflow.indexes[INDEX].manifest, BatchCache(of.store.directory))
    return contents(consolidated(counted(trace.rows_at(time))), time)


def from_time(updates: Updates, time: int) -> Updates:
    """The updates that are seen from a time on: contents there, and later updates."""
    advanced: Updates = Counter()
    for (row, error, at), diff in updates.items():
        advanced[row, error, max(at, time)] += diff
    return consolidated(advanced)
