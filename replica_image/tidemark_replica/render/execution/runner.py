"""Runners: the interface between a step and the processes that compute its fragments.

    StepRun ──FragmentRun(fragment, description)──> Runner ──> tasks: files, reports ──> StageReport ──> StepRun

Every runner evaluates the same tree over the same description and leaves the same reports, so neither a step nor its
commit depends on where its fragments ran.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, Protocol

from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.kernels.temporal import TemporalSpec
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution.prepare import prepare
from tidemark_replica.render.plan.fragments import Fragment, LoopFragment
from tidemark_replica.render.plan.jvm_frames import StageFrame, nodes_of
from tidemark_replica.render.plan.pipeline import (
    ArrangeKernel,
    IndexSource,
    Kernel,
    LoopInTask,
    Pipeline,
    ReadPublished,
    ReadPublishedErrors,
    Source,
)
from tidemark_replica.render.plan.pipeline import nodes_of as nodes_of_tree
from tidemark_replica.render.task import description
from tidemark_replica.render.task.description import StageReport, report_name
from tidemark_replica.render.task.timing import OperatorTimes


@dataclass(frozen=True)
class PreparedFragment:
    """A fragment and its physical plan on the JVM, which is made at its first use: a step worker needs none."""

    fragment: Fragment
    session: Any

    @cached_property
    def plan(self) -> Any:
        return prepare(self.session, self.fragment.stage)

    @cached_property
    def update_sources(self) -> tuple[Pipeline, ...]:
        """The leaves, and the kernels with scheduled updates: only these have updates for a step."""
        return tuple(node for each in nodes_of(self.fragment.stage) for node in _update_sources(each))

    @cached_property
    def arranged(self) -> tuple[ArrangementId, ...]:
        """The arrangements that are complete once the fragment has run: later fragments may read them."""
        nodes = nodes_of(self.fragment.stage)
        return tuple(node.arrangement for node in nodes if isinstance(node, ArrangeKernel))

    @property
    def watched_arrangements(self) -> tuple[ArrangementId, ...]:
        """The arrangements that may have updates for a step."""
        found = []
        for node in self.update_sources:
            match node:
                case IndexSource(arrangement) | Kernel(TemporalSpec(arrangement)):
                    found.append(arrangement)
        return tuple(found)


@dataclass(frozen=True)
class PreparedLoop:
    """A loop whose body needs the JVM, and its prepared parts."""

    fragment: LoopFragment
    parts: tuple[PreparedFragment, ...]
    arranged: tuple[ArrangementId, ...] = ()

    @property
    def watched_arrangements(self) -> tuple[ArrangementId, ...]:
        """The arrangements of updates that fall due inside; all others only react to the loop's inputs."""
        return self.fragment.loop.scheduled


@dataclass(frozen=True)
class FragmentRun:
    """A fragment to be run once, with the description at a path."""

    prepared: PreparedFragment
    description: Path
    rows: int | None
    """An upper bound of the updates that it reads; None at hydration, which reads all."""
    input_rows: int
    """The same, also at hydration. Unused in a loop's rounds, which run in one task."""
    single_time: bool
    """Whether all updates have one time: a hydration that ends with the as_of."""
    label: str
    """The name of the run in messages."""
    on_start: Callable[[StageFrame, int], None] = lambda stage, tasks: None
    """A callback with the shape and the number of tasks in which it runs."""
    only_step: bool = False
    """Whether the dataflow has no other step, so that its operators keep nothing."""


def _update_sources(node: Pipeline) -> Iterator[Pipeline]:
    """Yield the node if it has updates for a step; of a loop, the kernels inside with scheduled updates."""
    match node:
        case Source() | IndexSource() | ReadPublished() | ReadPublishedErrors() | Kernel(TemporalSpec()):
            yield node
        case LoopInTask(_, _, trees):
            inside = (each for tree in trees for each in nodes_of_tree(tree))
            yield from (each for each in inside if isinstance(each, Kernel) and isinstance(each.spec, TemporalSpec))


class Runner(Protocol):
    """Runs the fragments of one dataflow, one after the other."""

    @property
    def jobs(self) -> int:
        """The number of Spark jobs so far."""

    def begin(self) -> None:
        """Begin a step; forget the cancellation of the one before. Raises StepCancelled once closed."""

    def run(self, work: FragmentRun) -> StageReport:
        """Run a fragment on the calling thread. Raises StepFailed or StepCancelled."""

    def end(self) -> None:
        """End the step."""

    def cancel(self) -> None:
        """Cancel what runs. Returns at once."""

    def close(self) -> None:
        """Cancel, and refuse later steps."""


def complete_report(folder: Path, pipelines: Sequence[Sequence[str]], label: str, tasks: int = 1) -> StageReport:
    """The report of one complete attempt of every task, combined.

    `pipelines`: the stages that run in the same tasks; an attempt is complete if it reported all of them. Attempts of
    one task may differ in their chunks, but their updates add up to the same, so any complete attempt counts. Raises
    StepFailed if a task has none.
    """
    names = os.listdir(folder) if folder.is_dir() else []
    found = [_complete(folder, names, stages, share, label) for stages in pipelines for share in range(tasks)]
    return _merge_reports([report for reports in found for report in reports])


def _complete(folder: Path, names: Collection[str], stages: Sequence[str], share: int, label: str) -> list[StageReport]:
    before, after = report_name(stages[-1], share, "*").split("*")
    attempts = [int(n[len(before) : -len(after)]) for n in names if n.startswith(before) and n.endswith(after)]
    for attempt in sorted(attempts):
        reports = [report_name(stage, share, attempt) for stage in stages]
        if all(report in names for report in reports):
            return [StageReport.read(folder / report) for report in reports]
    raise StepFailed(f"{label} ended without a complete report of its stages {', '.join(stages)}; run it again")


def _merge_reports(reports: Sequence[StageReport]) -> StageReport:
    """The report of a stage from those of its tasks."""
    written: dict[ArrangementId, tuple[BatchRef, ...]] = {}
    published: dict[str, description.PublishedFiles] = {}
    for report in reports:
        for arrangement, refs in report.written.items():
            written[arrangement] = (*written.get(arrangement, ()), *refs)
        for name, part in report.published.items():
            published[name] = published[name].plus(part) if name in published else part
    merges, fed_back = tuple(m for r in reports for m in r.merges), tuple(f for r in reports for f in r.fed_back)
    spent = reduce(OperatorTimes.plus, (report.spent for report in reports))
    cold_reads = sum(report.cold_reads for report in reports)
    return StageReport(reports[0].attempt, written, merges, published, fed_back, spent, cold_reads)
