"""One run of one step: fragment after fragment, each fed by what earlier ones published.

A fragment none of whose leaves has anything to say costs no job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidemark_replica.arrangement.batch import BatchCache, BatchRef
from tidemark_replica.arrangement.kernels.temporal import TemporalSpec, is_due
from tidemark_replica.arrangement.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.arrangement.trace import Trace
from tidemark_replica.render import pipeline as p
from tidemark_replica.render.contract import Merged, Step
from tidemark_replica.render.description import Description, Published, Report
from tidemark_replica.render.fragments import Fragment, LoopFragment
from tidemark_replica.render.frames import nodes_of, stages_of
from tidemark_replica.render.jobs import StepJobs, believed
from tidemark_replica.render.recursion.fixpoint import Fixpoint


@dataclass(frozen=True)
class Prepared:
    """A fragment and its physical plan on the JVM."""

    fragment: Fragment
    plan: Any


@dataclass(frozen=True)
class PreparedLoop:
    """A loop whose body needs the JVM, and the physical plans of its parts."""

    fragment: LoopFragment
    plans: tuple[Any, ...]


class StepRun:
    """What a run has written so far."""

    def __init__(
        self,
        step: Step,
        run: StepId,
        folder: Path,
        jobs: StepJobs,
        store: ArrangementStore,
        pinned: Mapping[ArrangementId, Manifest],
        cache: BatchCache,
    ) -> None:
        self._cache = cache
        self._step, self._run, self._folder, self._jobs, self._store, self._pinned = (
            step,
            run,
            folder,
            jobs,
            store,
            pinned,
        )
        self.written: dict[ArrangementId, tuple[BatchRef, ...]] = {}
        self.merges: list[Merged] = []
        self._published: dict[str, Published] = {}
        self.jobs = 0

    def run(self, prepared: Prepared | PreparedLoop) -> None:
        """Run a fragment, or see that there is nothing to run."""
        if isinstance(prepared, PreparedLoop):
            self._run_loop(prepared)
        else:
            self._run_fragment(prepared)

    def _run_fragment(self, prepared: Prepared) -> None:
        fragment = prepared.fragment
        if not (self._step.hydrates or any(map(self._speaks, nodes_of(fragment.stage)))):
            return
        path = self._folder / f"{fragment.name}.json"
        self._describe().write(path)
        what = f"{fragment.name} of step {self._run} over [{self._step.lower}, {self._step.upper})"
        self._jobs.run(prepared.plan, path, what)
        self.jobs += 1
        report = believed(self._folder, stages_of(fragment.stage), what)
        self.written |= report.written
        self.merges += report.merges
        self._published |= report.published

    def _run_loop(self, prepared: PreparedLoop) -> None:
        """Rounds of jobs, to the end."""
        loop = prepared.fragment.loop
        entering = {name: self._absolute(self._published[name]) for name in loop.entering if name in self._published}
        if not (self._step.hydrates or any(found.rows for found in entering.values())):
            return

        def run(part: int, description: Path) -> Report:
            fragment = prepared.fragment.body[part]
            what = f"{fragment.name} of {loop.name} of step {self._run} ({description.parent.name})"
            self._jobs.run(prepared.plans[part], description, what)
            self.jobs += 1
            return believed(description.parent, stages_of(fragment.stage), what)

        fixpoint = Fixpoint(loop, self._describe(), self._folder, run)
        fixpoint.settle(entering)
        self.written |= fixpoint.written
        self.merges += fixpoint.merges
        self._published |= fixpoint.leaving

    def published(self, name: str) -> tuple[tuple[Path, ...], int]:
        """The files published under a name, and their rows."""
        found = self._published.get(name)
        return (tuple(self._folder / f for f in found.files), found.rows) if found and found.rows else ((), 0)

    def _absolute(self, found: Published) -> Published:
        return replace(found, files=tuple(str(self._folder.absolute() / file) for file in found.files))

    def _describe(self) -> Description:
        step = self._step
        published = {name: found.files for name, found in self._published.items() if found.rows}
        return Description(
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
        )

    def _speaks(self, node: p.Pipeline) -> bool:
        """Whether a leaf may have updates in this step (which is not the first), or a kernel of its own accord."""
        match node:
            case p.Source(id):
                return bool(self._step.parts.get(id))
            case p.IndexSource(arrangement):
                lower, limit = self._step.lower, self._step.limit
                batches = self._pinned[arrangement].batches
                return any(b.last_time >= lower and b.first_time < limit for b in batches)
            case p.Published(name) | p.PublishedErrors(name):
                found = self._published.get(name)
                return found is not None and found.rows > 0
            case p.Kernel(TemporalSpec(arrangement)):
                trace = Trace(self._pinned[arrangement], self._cache)
                return is_due(trace, self._step.lower, self._step.limit)
            case _:
                return False
