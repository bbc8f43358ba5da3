"""Wrong operators, to see that the oracle sees them. Each is a mistake that is easily made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.updates import Updates, diffs, errors, make_updates, row_columns, times
from tidemark_replica.render.plan.pipeline import (
    Concat,
    IndexSource,
    JoinKernel,
    JvmInput,
    Kernel,
    LoopVariable,
    Pipeline,
    Publish,
    ReadSpool,
    Source,
)
from tidemark_replica.render.task.jvm_input_slots import StageFeed
from tidemark_replica.render.task.stage import Stage


class WrongStage(Stage):
    """A stage in which one thing is done wrongly."""

    mistake: Callable[[WrongStage, Pipeline, Iterator[Updates]], Iterator[Updates]]

    def evaluate(self, tree: Pipeline) -> Iterator[Updates]:
        return self.mistake(self, tree, super().evaluate(tree))

    @property
    def hydrates(self) -> bool:
        return self._context.is_hydration

    @property
    def last(self) -> int:
        return self._context.upper - 1


def forgets_retractions(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """The mistake: retractions are not taken out."""
    for batch in updates:
        yield batch.filter(pa.array(diffs(batch) > 0)) if isinstance(tree, Source) else batch


def ignores_times(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """All of a step's updates happen at its end."""
    for batch in updates:
        at = np.full(batch.num_rows, stage.last)
        yield make_updates(row_columns(batch), at, diffs(batch), errors(batch)) if isinstance(tree, Source) else batch


def loses_errors(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """Rows that fail are dropped."""
    for batch in updates:
        yield batch.filter(errors(batch).is_null()) if isinstance(tree, Publish | JvmInput) else batch


def counts_twice(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """A retry that reads its input again."""
    for batch in updates:
        yield batch
        if isinstance(tree, Source) and not stage.hydrates:
            yield batch


def forgets_its_state(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """A reduce that sees only the step."""
    if isinstance(tree, Kernel):
        context = stage._context
        forgotten = {a: replace(m, batches=()) for a, m in context.manifests.items()}
        stage._context = replace(context, manifests=forgotten)
        yield from Stage.evaluate(stage, tree)
        stage._context = replace(stage._context, manifests=context.manifests)
    else:
        yield from updates


def takes_nothing_back(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """A kernel that tells what is new, and not what is no longer so."""
    for batch in updates:
        yield batch.filter(pa.array(diffs(batch) > 0)) if isinstance(tree, Kernel) else batch


def answers_at_the_end(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """A kernel that dates all its output at the step's last time."""
    for batch in updates:
        if isinstance(tree, Kernel):
            batch = make_updates(row_columns(batch), np.full(batch.num_rows, stage.last), diffs(batch), errors(batch))
        yield batch


def joins_one_side_only(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """The mistake: new rows on the right are arranged, but meet nothing."""
    for batch in updates:
        if isinstance(tree, JoinKernel) and not stage.hydrates:
            batch = batch.slice(0, batch.num_rows // 2)
        yield batch


def negates_nothing(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """A union that adds what it should subtract."""
    for batch in updates:
        wrong = isinstance(tree, Concat)
        diff = np.abs(diffs(batch)) if wrong else diffs(batch)
        yield make_updates(row_columns(batch), times(batch), diff, errors(batch))


def takes_null_for_a_value(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """NULL becomes 0."""
    for batch in updates:
        if isinstance(tree, Source | IndexSource):
            ok = errors(batch).is_null()
            columns = [c.fill_null(0) if pa.types.is_integer(c.type) else c for c in row_columns(batch)]
            assert ok.true_count == batch.num_rows
            batch = make_updates(columns, times(batch), diffs(batch), errors(batch))
        yield batch


def reads_a_spool_once(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """The mistake: only the first of several readers of one stream gets it."""
    if not isinstance(tree, ReadSpool):
        yield from updates


def counts_ways_twice(stage: WrongStage, tree: Pipeline, updates: Iterator[Updates]) -> Iterator[Updates]:
    """A loop that takes in again what went round."""
    for batch in updates:
        yield batch
        if isinstance(tree, LoopVariable):
            yield batch


def run_wrong(mistake: Any, name: str, tree: Pipeline, feed: StageFeed, rows: Iterable[Any]) -> Iterator[Updates]:
    """In the place of `stage.run_stage`."""
    stage = WrongStage.in_task(feed, rows)
    stage.mistake = mistake
    yield from stage.evaluate(tree)
    stage.report(name)
