"""A Python call's time by what it is spent on, measured inside Spark's Python workers and step workers.

    run_stage, call ──> the product's, its methods wrapped ──> one line per call in $TIDEMARK_PROFILE/spans.<pid>.jsonl

Operators are generators that run inside one another: time counts for the innermost thing under way. The driver puts
`run_stage` in the place of the product's before plans are prepared; Spark's workers import it by name, step workers
begin as `bench.profiling.worker`.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.profiling import stacks
from bench.profiling.parts import Call
from tidemark_replica.arrangement import step, step_runs
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.render.plan import pipeline
from tidemark_replica.render.task import in_step_merges, stage
from tidemark_replica.render.task.description import StageReport, StepDescription
from tidemark_replica.render.task.jvm_input_slots import StageFeed

FOLDER = "TIDEMARK_PROFILE"


class Clock:
    """Milliseconds by label, of the innermost label."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._labels: list[str] = []
        self._since = time.perf_counter()

    def enter(self, label: str) -> None:
        self._settle()
        self._labels.append(label)

    def leave(self) -> None:
        self._settle()
        self._labels.pop()

    def _settle(self) -> None:
        now = time.perf_counter()
        if self._labels:
            self.spent[self._labels[-1]] += (now - self._since) * 1e3
        self._since = now


CLOCK = Clock()


def run_stage(name: str, tree: Any, feed: StageFeed, rows: Any) -> Iterator[Any]:
    """The product's stage, timed."""
    with call(name):
        yield from _timed("stage", _STAGE(name, tree, feed, rows))


@contextmanager
def call(stage: str) -> Iterator[None]:
    """A stage's Python call, from its beginning to its end, when it is recorded."""
    _wrap_once()
    folder, begin = Path(os.environ[FOLDER]), time.time()
    CLOCK.spent.clear()
    if (folder / "sample").exists():
        stacks.sample_this_process(folder)
    CLOCK.enter("stage")
    try:
        yield
    finally:
        CLOCK.leave()
        call_record = Call(stage, begin * 1e3, time.time() * 1e3, dict(CLOCK.spent))
        with (folder / f"spans.{os.getpid()}.jsonl").open("a") as out:
            out.write(json.dumps(vars(call_record)) + "\n")


def calls(folder: Path) -> list[Call]:
    """All that have been told of."""
    lines = [line for path in folder.glob("spans.*.jsonl") for line in path.read_text().splitlines()]
    return [Call(**json.loads(line)) for line in lines]


def forget(folder: Path) -> None:
    """The records so far."""
    for path in folder.glob("spans.*.jsonl"):
        path.unlink()


_STAGE = stage.run_stage


def label(node: pipeline.Pipeline) -> str:
    """The label of a node's own time."""
    if isinstance(node, pipeline.Kernel):
        return f"operator {type(node.spec).__name__.removesuffix('Spec')}"
    return f"operator {type(node).__name__.removesuffix('Kernel')}"


def _timed(name: str, updates: Iterator[Any]) -> Iterator[Any]:
    """The same batches; the time that each takes to come is the label's."""
    while True:
        CLOCK.enter(name)
        try:
            batch = next(updates)
        except StopIteration:
            return
        finally:
            CLOCK.leave()
        yield batch


def _calls(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:
        CLOCK.enter(name)
        try:
            return function(*arguments, **named)
        finally:
            CLOCK.leave()

    return timed


@functools.cache
def _wrap_once() -> None:
    """Wrap the functions that have their own line; in this worker, for its lifetime."""
    evaluate = stage.Stage.evaluate
    stage.Stage.evaluate = lambda self, tree: _timed(label(tree), evaluate(self, tree))  # type: ignore[method-assign]
    StepDescription.read = staticmethod(_calls("description", StepDescription.read))  # type: ignore[method-assign]
    for holder, name, called in (
        (BatchCache, "segments", "batches opened"),
        (step.BatchWriter, "write_scratch", "batches written"),
        (StageReport, "write", "report written"),
        (in_step_merges, "merge", "merges"),
        (in_step_merges, "plan_merges", "merges"),
        (in_step_merges, "merges_in_step", "merges"),
        (step_runs, "merge_segments", "merges"),
    ):
        setattr(holder, name, _calls(called, getattr(holder, name)))
