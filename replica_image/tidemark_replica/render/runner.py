"""Where a fragment runs: the seam between a step and what computes it.

    StepRun ──Work(fragment, description, rows)──> Runner ──> tasks: files, reports ──believed──> Report ──> StepRun

Whoever runs it, the same tree reads the same description and leaves the same reports, so a step does not know, and a
commit does not depend on, where its fragments ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from tidemark_replica.arrangement.kernels.temporal import TemporalSpec
from tidemark_replica.arrangement.manifest import ArrangementId
from tidemark_replica.render.description import Report
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.fragments import Fragment, LoopFragment
from tidemark_replica.render.frames import nodes_of
from tidemark_replica.render.pipeline import IndexSource, Kernel, Pipeline, Published, PublishedErrors, Source


@dataclass(frozen=True)
class Prepared:
    """A fragment and its physical plan on the JVM."""

    fragment: Fragment
    plan: Any

    @cached_property
    def speakers(self) -> tuple[Pipeline, ...]:
        """Its leaves, and kernels that act of their own accord: nothing else has updates for a step."""
        return tuple(node for node in nodes_of(self.fragment.stage) if _speaks(node))

    @property
    def watched(self) -> tuple[ArrangementId, ...]:
        """The arrangements that may have updates for a step."""
        found = []
        for node in self.speakers:
            match node:
                case IndexSource(arrangement) | Kernel(TemporalSpec(arrangement)):
                    found.append(arrangement)
        return tuple(found)


@dataclass(frozen=True)
class PreparedLoop:
    """A loop whose body needs the JVM, and its parts."""

    fragment: LoopFragment
    parts: tuple[Prepared, ...]
    watched: tuple[ArrangementId, ...] = ()
    """None of their own: something must enter."""


@dataclass(frozen=True)
class Work:
    """A fragment to be run once, as the description at that path says."""

    prepared: Prepared
    description: Path
    rows: int | None
    """How many updates its leaves have for it, at most; None at hydration, which reads all there is."""
    what: str
    """For messages."""


def _speaks(node: Pipeline) -> bool:
    match node:
        case Source() | IndexSource() | Published() | PublishedErrors() | Kernel(TemporalSpec()):
            return True
        case _:
            return False


class Runner(Protocol):
    """Runs one dataflow's fragments, one after the other."""

    @property
    def jobs(self) -> int:
        """How many Spark jobs it has run so far."""

    def begin(self) -> None:
        """A step begins: what was cancelled was the one before. Raises StepCancelled once it is closed."""

    def run(self, work: Work) -> Report:
        """On the calling thread, to the end; raises StepFailed or StepCancelled."""

    def end(self) -> None:
        """The step is over."""

    def cancel(self) -> None:
        """Ends what runs; returns at once."""

    def close(self) -> None:
        """No step runs from now on."""


def believed(folder: Path, stages: Sequence[str], what: str) -> Report:
    """The reports of one attempt that reported every stage, as one; raises StepFailed when there is none."""
    attempts = sorted(int(p.name.split(".")[1]) for p in folder.glob(f"{stages[-1]}.*.report"))
    for attempt in attempts:
        paths = [folder / f"{stage}.{attempt}.report" for stage in stages]
        if all(path.exists() for path in paths):
            return _together([Report.read(path) for path in paths])
    raise StepFailed(f"{what} ended without a complete report of its stages {', '.join(stages)}; run it again")


def _together(reports: Sequence[Report]) -> Report:
    written = {a: refs for r in reports for a, refs in r.written.items()}
    published = {name: p for r in reports for name, p in r.published.items()}
    merges, fed_back = tuple(m for r in reports for m in r.merges), tuple(f for r in reports for f in r.fed_back)
    return Report(reports[0].attempt, written, merges, published, fed_back)
