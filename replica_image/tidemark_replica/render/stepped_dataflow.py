"""The interface of a dataflow to the command loop: steps are planned, run and committed.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tidemark_persist import FilePart
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.spine import Merge
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.render.index import IndexTrace


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
            with pa.memory_map(str(path), "r") as source:
                reader = pa.ipc.open_file(source)
                yield from (reader.get_batch(i) for i in range(reader.num_record_batches))


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


class SteppedDataflow(Protocol):
    """A dataflow as the command loop drives it; `dataflow.RenderedDataflow` implements it."""

    @property
    def frontier(self) -> Frontier:
        """Every export is complete below it: the lower of the next step, empty once `until` is reached."""

    def rows_at_most(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]]) -> int:
        """An upper bound of the updates that a step to `upper` reads. Opens no file."""

    def rows_about(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]]) -> int | None:
        """The updates that a step to `upper` reads, within a factor of two; None: not known. Opens no file."""

    def narrowed(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]], rows: int) -> Frontier:
        """The upper of a step that reads at most `rows` updates, or those of one time: `upper` at most."""

    def heavy_times(
        self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]], rows: int
    ) -> list[tuple[int, int]]:
        """The times of a step to `upper` with at least `rows` updates, ascending, and how many each has."""

    def plan_step(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]]) -> Step:
        """The step from the frontier to `upper`; to the empty frontier past `until`, and when inputs have ended.

        `inputs` has the parts to read of every source import: `shard.listen(lower, upper)`, or at hydration
        `shard.snapshot_parts(as_of)` and `shard.listen(as_of + 1, upper)`. Imported indexes are read from their traces
        and must be complete up to `upper`. Raises ValueError for an upper at or below the frontier, and for a missing
        input.
        """

    def is_quiet(self, step: Step) -> bool:
        """Whether the step has no updates; `skip` then gives the outcome of `run`."""

    def skip(self, step: Step) -> StepOutcome: ...

    def run(self, step: Step) -> StepOutcome:
        """Run the step on the calling thread. Raises StepFailed or StepCancelled with the state unchanged."""

    def commit(self, outcome: StepOutcome) -> None:
        """Commit the step's batches; the frontier becomes its upper. Raises StepFailed."""

    @property
    def indexes(self) -> Mapping[GlobalId, IndexTrace]:
        """The exported indexes."""

    def compact(self, export: GlobalId, since: Frontier) -> None:
        """Let the index's times before `since` be compacted."""

    def cancel(self) -> None:
        """Cancel the running step, if any, which raises StepCancelled. Returns at once."""

    def drop(self) -> None:
        """Cancel, and free all state once no reader has it pinned."""
