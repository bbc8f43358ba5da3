"""The values that a dataflow and the command loop exchange: steps are planned, run and committed (`dataflow.py`).

    pool thread:  upper = dataflow.narrowed(upper, inputs, rows)    where much has come, a step of bounded rows
    loop thread:  step = dataflow.plan_step(upper, inputs)          which updates, up to which time
    pool thread:      outcome = dataflow.run(step)                  Spark jobs; changes no state
    loop thread:  dataflow.commit(outcome)                          the state changes, in one place
                      ... pass outcome.deltas to the sinks ...
    pool thread:      outcome.release()                             deletes the deltas' files after the sinks read them

A step that fails, or whose process dies before the commit, leaves the state unchanged: it can run again, with the same
bounds or others. A dataflow runs at most one step at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark_persist import FilePart
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.spine import Merge
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.values.arrow_files import read_batches


@dataclass(frozen=True)
class Step:
    """All updates with times in [lower, upper), through every operator.

    The first step hydrates: its `lower` is the as_of, and earlier updates are read as updates at the as_of.
    """

    id: StepId
    lower: Time
    upper: Frontier
    limit: Time
    """The end of the updates that are computed: `upper`, or the dataflow's until."""
    hydrates: bool
    parts: Mapping[GlobalId, tuple[FilePart, ...]] = field(default_factory=dict)
    is_only_step: bool = False
    """Whether the dataflow has one time, the as_of: its operators keep nothing for later steps."""


@dataclass(frozen=True)
class SinkDelta:
    """The changes that a step made to a sink's collection: Arrow files of `c0 ... cn-1, __time, __diff, __error`."""

    export: GlobalId
    lower: Time
    upper: Frontier
    schema: pa.Schema
    files: tuple[Path, ...] = ()
    rows: int = 0

    def batches(self) -> Iterator[Any]:
        """Yield the updates, oks and errs, each with its own time."""
        for path in self.files:
            yield from read_batches(path)


@dataclass(frozen=True)
class Merged:
    """A merge that a step carried out, and its result (None: everything cancelled)."""

    merge: Merge
    result: BatchRef | None


@dataclass(frozen=True)
class StepOutcome:
    """The result of a run: the batches to commit, and the deltas of the sinks."""

    step: Step
    written: Mapping[ArrangementId, tuple[BatchRef, ...]]
    merges: tuple[Merged, ...]
    deltas: Mapping[GlobalId, SinkDelta]
    folder: Path | None
    """The folder of the deltas' files; None: the step was skipped."""
    jobs: int = 0
    """The number of Spark jobs."""
    spent: Mapping[int, int] = field(default_factory=dict)
    """Microseconds of work by operator."""
    cold_reads: int = 0
    """The number of batches that the processes opened, because they had neither opened nor written them before."""

    @property
    def batches(self) -> Iterator[BatchRef]:
        """Yield every batch that the step wrote, those that it merged at once included."""
        yield from chain.from_iterable(self.written.values())
        yield from (merged.result for merged in self.merges if merged.result is not None)

    def release(self) -> None:
        """Delete the deltas' files. May be repeated."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
