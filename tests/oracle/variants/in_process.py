"""A harness without Spark jobs: fragments that need no Catalyst run in this process, a hundred times as many a second.

The results of a Spark job are what the same trees compute here; that Spark runs them rightly is for the other tests.

InProcessRunner    one attempt of each fragment
InPieces           rows in another order, few at a time
Interrupted        attempts that fail after so many batches, or are made twice and both report
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from tests.checked_patches import CheckedPatches
from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, delta
from tests.oracle.histories import History, Table
from tests.oracle.variants import PiecewiseStage
from tests.stored_files import live_files, stored_files
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.render import build
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution import runner as runner_module
from tidemark_replica.render.execution.executor_affinity import DataflowAffinity
from tidemark_replica.render.execution.runner import FragmentRun, complete_report
from tidemark_replica.render.execution.step_shape import ExchangePolicy, FragmentShapes
from tidemark_replica.render.plan.jvm_frames import StageFrame, pipelines_of
from tidemark_replica.render.plan.pipeline import Pipeline
from tidemark_replica.render.task import stage as stage_module
from tidemark_replica.render.task.description import StageReport
from tidemark_replica.render.task.jvm_input_slots import JvmInputSlots
from tidemark_replica.render.task.stage import Stage

ATTEMPTS = count(1)
PATIENCE = (0, 1, 2, 4, 8, math.inf)


class NeedsCatalyst(Exception):
    """A part of this dataflow is a Spark plan."""


class InProcessRunner:
    """In the place of SparkRunner: one after the other, here."""

    jobs = 0
    stage: type[Stage] = Stage

    def __init__(self, session: Any, tag: str, shapes: FragmentShapes, home: DataflowAffinity) -> None:
        self.shapes = shapes

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass

    def run(self, work: FragmentRun) -> StageReport:
        self.attempt(work)
        frame = work.prepared.fragment.stage
        return complete_report(work.description.parent, pipelines_of(frame), work.label)

    def attempt(self, work: FragmentRun) -> None:
        """From the leaves to the report."""
        frame = work.prepared.fragment.stage
        work.on_start(frame, 1)
        attempt = self.stage(work.description, next(ATTEMPTS), JvmInputSlots((), ()))
        attempt.count(frame.name, frame.tree)
        for _ in attempt.evaluate(frame.tree):
            pass
        attempt.report(frame.name)


class InPieces(InProcessRunner):
    """Rows in another order, few at a time."""

    stage = PiecewiseStage


class ImpatientStage(Stage):
    """A stage that fails when its operators have handed on so many batches."""

    patience = math.inf

    def evaluate(self, tree: Pipeline) -> Iterator[Any]:
        for batch in super().evaluate(tree):
            if ImpatientStage.patience <= 0:
                raise StepFailed("cut short")
            ImpatientStage.patience -= 1
            yield batch


class Interrupted(InProcessRunner):
    """Attempts that may be cut short; those that are not are made twice, and both report."""

    stage = ImpatientStage

    def attempt(self, work: FragmentRun) -> None:
        super().attempt(work)
        super().attempt(work)


def interrupted(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
    """Every step fails at several points before it succeeds; no failure shows, and no file of one is left."""
    dataflow = of.build(description, runner=Interrupted)
    made: Updates = Counter()
    for upper in bounds:
        step = dataflow.plan_step(Frontier.at(upper), of.inputs(dataflow, upper))
        outcome = None
        for patience in PATIENCE:
            before = _state(of)
            with CheckedPatches.context() as patch, suppress(StepFailed):
                patch.setattr(ImpatientStage, "patience", patience)
                outcome = dataflow.run(step)
                break
            assert _state(of) == before, f"{description.name}: a step cut short after {patience} batches shows"
        assert outcome is not None
        dataflow.commit(outcome)
        made.update(delta(outcome, SINK))
        outcome.release()
    of.store.sweep(())
    root = of.store.directory
    assert stored_files(root) == live_files(of.store.arrangements())
    dataflow.drop()
    assert list(root.glob(f"{dataflow._folder.name}*")) == []
    return of.history.as_of, consolidated(made)


def _state(of: DataflowHarness) -> list[Any]:
    return sorted(of.store.arrangements(), key=lambda m: m.arrangement)


class InProcessHarness(DataflowHarness):
    """Its dataflows run here; raises NeedsCatalyst for those that cannot."""

    def build(self, description: DataflowDescription, **how: Any) -> RenderedDataflow:
        runner = how.pop("runner", InProcessRunner)
        how.setdefault("exchange_policy", ExchangePolicy(1))
        with without_jobs(runner):
            return super().build(description, **how)

    def close(self) -> None:
        stage_module._CACHES.pop(self.store.directory, None)
        super().close()


@contextmanager
def in_process(folder: Path, tables: Mapping[str, Table], history: History) -> Iterator[InProcessHarness]:
    """A harness that is closed at the end of the block."""
    made = InProcessHarness(None, folder, tables, history)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def without_jobs(runner: type[InProcessRunner] = InProcessRunner) -> Iterator[None]:
    """Dataflows that are built in the block run here."""
    with CheckedPatches.context() as patch:
        patch.setattr(runner_module, "prepare", _itself)
        patch.setattr(build, "SparkRunner", runner)
        yield


def _itself(session: Any, stage: StageFrame, tasks: int = 1) -> StageFrame:
    if stage.inputs:
        raise NeedsCatalyst(stage.name)
    return stage
