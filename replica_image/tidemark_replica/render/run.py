"""One run of one step: fragment after fragment, each fed by what earlier ones published.

A fragment none of whose leaves has anything to say costs no job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from tidemark_replica.render.description import Description, Published
from tidemark_replica.render.fragments import Fragment
from tidemark_replica.render.frames import Frame, StageFrame, UnionFrame, stages_of
from tidemark_replica.render.jobs import StepJobs, believed


@dataclass(frozen=True)
class Prepared:
    """A fragment and its physical plan on the JVM."""

    fragment: Fragment
    plan: Any


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
    ) -> None:
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

    def run(self, prepared: Prepared) -> None:
        """Run a fragment, or see that there is nothing to run."""
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

    def published(self, name: str) -> tuple[tuple[Path, ...], int]:
        """The files published under a name, and their rows."""
        found = self._published.get(name)
        return ((self._folder / found.file,), found.rows) if found is not None and found.rows else ((), 0)

    def _describe(self) -> Description:
        step = self._step
        published = {name: (found.file,) for name, found in self._published.items() if found.rows}
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
            case p.Published(name):
                found = self._published.get(name)
                return found is not None and found.rows > 0
            case p.Kernel(TemporalSpec(arrangement)):
                trace = Trace(self._pinned[arrangement], BatchCache(self._store.directory))
                return is_due(trace, self._step.lower, self._step.limit)
            case _:
                return False


def nodes_of(frame: Frame) -> Iterator[p.Pipeline]:
    """All nodes of all stages of a frame."""
    match frame:
        case StageFrame(_, tree, inputs, _):
            yield from _nodes(tree)
            for below in inputs:
                yield from nodes_of(below)
        case UnionFrame(inputs, _):
            for below in inputs:
                yield from nodes_of(below)
        case _:
            yield from nodes_of(frame.input)


def _nodes(tree: p.Pipeline) -> Iterator[p.Pipeline]:
    yield tree
    for below in p.inputs_of(tree):
        yield from _nodes(below)
