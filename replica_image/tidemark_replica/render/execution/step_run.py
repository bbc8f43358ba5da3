"""One run of one step: fragment after fragment, each reading what earlier ones published.

A fragment without updates in any of its leaves runs no job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.kernels.temporal import TemporalSpec, due_rows
from tidemark_replica.render.execution.runner import FragmentRun, PreparedFragment, PreparedLoop, Runner
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.jvm_frames import StageFrame
from tidemark_replica.render.stepped_dataflow import Merged, Step
from tidemark_replica.render.task.description import PublishedFiles, StageReport, StepDescription
from tidemark_replica.render.task.loop.fixpoint import Fixpoint
from tidemark_replica.render.task.timing import MICROSECONDS
from tidemark_replica.render.telemetry.operator_costs import OperatorCosts
from tidemark_replica.render.telemetry.progress import HydrationMeter


class StepRun:
    """A run of a step, and what it has written so far."""

    def __init__(
        self,
        step: Step,
        run: StepId,
        folder: Path,
        runner: Runner,
        store: ArrangementStore,
        pinned: Mapping[ArrangementId, Manifest],
        busy: frozenset[str],
        cache: BatchCache,
        operators: OperatorCosts,
        *,
        inputs_grow: bool = False,
    ) -> None:
        """`busy`: files in a background merge when the manifests were pinned, or just before. `inputs_grow`: the
        dataflow reads append-only tables alone.
        """
        self._busy, self._cache = busy, cache
        self._step, self._run, self._folder, self._runner = step, run, folder, runner
        self._store, self._pinned = store, pinned
        self._inputs_grow = inputs_grow
        self._single_time = step.hydrates and step.limit == step.lower + 1
        self.written: dict[ArrangementId, tuple[BatchRef, ...]] = {}
        self.merges: list[Merged] = []
        self._published: dict[str, PublishedFiles] = {}
        self._jobs_before = runner.jobs
        self._progress: HydrationMeter | None = None
        self._operators = operators
        self.spent: Counter[int] = Counter()
        self.cold_reads = 0

    def watch(self, progress: HydrationMeter) -> None:
        """Report the progress of this run to `progress`."""
        self._progress = progress

    def run(self, prepared: PreparedFragment | PreparedLoop) -> None:
        """Run a fragment, unless it has no updates."""
        if isinstance(prepared, PreparedLoop):
            self._run_loop(prepared)
        else:
            self._run_fragment(prepared)
            self._show(prepared.arranged)

    def _run_fragment(self, prepared: PreparedFragment) -> None:
        fragment = prepared.fragment
        reads = sum(map(self.rows, prepared.update_sources))
        rows = None if self._step.hydrates else reads
        if rows == 0:
            return
        path = self._folder / f"{fragment.name}.json"
        self._describe().write(path)
        label = f"{fragment.name} of step {self._run} over [{self._step.lower}, {self._step.upper})"
        shape = fragment.stage

        def fragment_started(stage: StageFrame, tasks: int) -> None:
            nonlocal shape
            shape = stage
            if self._progress is not None:
                self._progress.fragment_started(fragment.name, stage, tasks, self._folder)

        work = FragmentRun(
            prepared, path, rows, reads, self._single_time, label, fragment_started, self._step.is_only_step
        )
        report = self._runner.run(work)
        self.spent.update(self._operators.counted(shape, report.spent))
        self.cold_reads += report.cold_reads
        self.written |= report.written
        self.merges += report.merges
        self._published |= report.published
        if self._progress is not None:
            self._progress.fragment_ended(fragment.name)

    def _show(self, arranged: Collection[ArrangementId]) -> None:
        """Show later fragments the arrangements that are now complete up to the step's upper.

        Merges of the step in them count from the commit on: the manifests here are the run's own.
        """
        if not arranged:
            return
        lower, upper = self._step.lower, self._step.upper.encode()
        shown = {a: self._pinned[a].append(self.written.get(a, ()), lower, upper) for a in arranged}
        self._pinned = {**self._pinned, **shown}

    def _run_loop(self, prepared: PreparedLoop) -> None:
        """Run a loop's rounds as jobs, to the end."""
        loop = prepared.fragment.loop
        entering = {name: self._absolute(self._published[name]) for name in loop.entering if name in self._published}
        due = sum(map(self._due_rows, loop.scheduled))
        rows = None if self._step.hydrates else due + sum(found.rows for found in entering.values())
        if rows == 0:
            return

        def run(at: int, description: Path) -> StageReport:
            part = prepared.parts[at]
            label = f"{part.fragment.name} of {loop.name} of step {self._run} ({description.parent.name})"
            report = self._runner.run(FragmentRun(part, description, rows, 0, self._single_time, label))
            self.cold_reads += report.cold_reads
            return report

        fixpoint = Fixpoint(loop, self._describe(), self._folder, self._cache, run)
        began = perf_counter()
        fixpoint.settle(entering)
        self.spent.update(self._operators.loop(loop.name, round((perf_counter() - began) * MICROSECONDS)))
        self.written |= fixpoint.written
        self.merges += fixpoint.merges
        self._published |= fixpoint.leaving
        if self._progress is not None:
            self._progress.fragment_ended(loop.name)

    @property
    def jobs(self) -> int:
        """The number of Spark jobs of this run."""
        return self._runner.jobs - self._jobs_before

    def published(self, name: str) -> tuple[tuple[Path, ...], int]:
        """(files, rows) published under a name."""
        found = self._published.get(name)
        return (tuple(self._folder / f for f in found.files), found.rows) if found and found.rows else ((), 0)

    def _absolute(self, found: PublishedFiles) -> PublishedFiles:
        return replace(found, files=tuple(str(self._folder.absolute() / file) for file in found.files))

    def _describe(self) -> StepDescription:
        step = self._step
        published = {name: found.files for name, found in self._published.items() if found.rows}
        return StepDescription(
            step=self._run,
            lower=step.lower,
            upper=step.upper.encode(),
            limit=step.limit,
            hydrates=step.hydrates,
            store=self._store.directory,
            parts=step.parts,
            manifests=self._pinned,
            published=published,
            bytes_left=self._store.bytes_left,
            busy=self._busy,
            is_only_step=self._step.is_only_step,
            inputs_add_only=self._single_time and self._inputs_grow,
        )

    def rows(self, node: p.Pipeline) -> int:
        """About how many updates a leaf, or a kernel with scheduled updates, has for this step.

        0 means that there are none, except at hydration.
        """
        match node:
            case p.Source(id):
                return sum(part.rows_about for part in self._step.parts.get(id, ()))
            case p.IndexSource(arrangement):
                lower, limit = 0 if self._step.hydrates else self._step.lower, self._step.limit
                batches = self._pinned[arrangement].batches
                return sum(b.rows for b in batches if b.last_time >= lower and b.first_time < limit)
            case p.ReadPublished(name) | p.ReadPublishedErrors(name):
                found = self._published.get(name)
                return 0 if found is None else found.rows
            case p.Kernel(TemporalSpec(arrangement)):
                return self._due_rows(arrangement)
            case _:
                return 0

    def _due_rows(self, arrangement: ArrangementId) -> int:
        return due_rows(Trace(self._pinned[arrangement], self._cache), self._step.lower, self._step.limit)
