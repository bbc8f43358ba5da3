"""What the command loop sees of a dataflow: steps that are planned, run and committed.

    loop thread:  step = dataflow.plan_step(upper, inputs)          which updates, up to when
    pool thread:      outcome = dataflow.run(step)                  Spark jobs; changes no state
    loop thread:  dataflow.commit(outcome)                          the state moves, in one place
                  ... hand outcome.deltas to the sinks ...
    pool thread:      outcome.release()                             the deltas' files go, once the sinks have read them

A step that fails, or whose process dies before the commit, leaves the state as it was: run it again, as it is or over
other bounds. At most one step of a dataflow is under way at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tidemark_persist import Part
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.spine import Merge
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.render.index import IndexTrace


@dataclass(frozen=True)
class Step:
    """Updates with times in [lower, upper) through every operator.

    The first one hydrates: its `lower` is the as_of, and what happened before is read as having happened then.
    """

    id: StepId
    lower: Time
    upper: Frontier
    limit: Time
    """Updates from here on are left out: `upper`, or the dataflow's `until`."""
    hydrates: bool
    parts: Mapping[GlobalId, tuple[Part, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class SinkDelta:
    """What a step changed in the collection of a sink: Arrow files of `c0 ... cn-1, __time, __diff, __error`."""

    export: GlobalId
    lower: Time
    upper: Frontier
    schema: pa.Schema
    files: tuple[Path, ...] = ()
    rows: int = 0

    def batches(self) -> Iterator[Any]:
        """The updates, oks and errs, each with its own time."""
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
    """What a step that ran hands back: batches to be committed, and the deltas of the sinks."""

    step: Step
    written: Mapping[ArrangementId, tuple[BatchRef, ...]]
    merges: tuple[Merged, ...]
    deltas: Mapping[GlobalId, SinkDelta]
    folder: Path | None
    """The deltas' files are in it; None: the step was skipped."""
    jobs: int = 0
    """How many Spark jobs it took."""
    spent: Mapping[int, int] = field(default_factory=dict)
    """By operator, the microseconds that it worked."""
    cold_reads: int = 0
    """How many batches its processes had to open, as they had neither opened nor written them before."""

    @property
    def batches(self) -> Iterator[BatchRef]:
        """Every batch that the step wrote, those that it merged into others at once included."""
        yield from chain.from_iterable(self.written.values())
        yield from (merged.result for merged in self.merges if merged.result is not None)

    def release(self) -> None:
        """The deltas have been read: their files go. Harmless when repeated."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class SteppedDataflow(Protocol):
    """A dataflow as the command loop drives it (`dataflow.RenderedDataflow` is the real one)."""

    @property
    def frontier(self) -> Frontier:
        """Times before it are complete in every export: the lower of the next step; empty once `until` is reached."""

    def plan_step(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[Part]]) -> Step:
        """The step from the frontier to `upper`; past `until`, and when inputs have ended, up to the empty frontier.

        `inputs` has, for every source import, the parts to read: `shard.listen(lower, upper)`, or, to hydrate,
        `shard.snapshot_parts(as_of)` and `shard.listen(as_of + 1, upper)`. Imported indexes are read from their
        traces and must be complete up to `upper`.
        """

    def is_quiet(self, step: Step) -> bool:
        """Whether nothing happens in it; then `skip` says what `run` would."""

    def skip(self, step: Step) -> StepOutcome: ...

    def run(self, step: Step) -> StepOutcome:
        """Run the step on the calling thread; raises StepFailed or StepCancelled with the state unchanged."""

    def commit(self, outcome: StepOutcome) -> None:
        """Take over what the step wrote; the frontier moves to its upper."""

    @property
    def indexes(self) -> Mapping[GlobalId, IndexTrace]:
        """The exported indexes."""

    def compact(self, export: GlobalId, since: Frontier) -> None:
        """The index need not be readable before `since` any more."""

    def cancel(self) -> None:
        """End the running step, if any; it raises StepCancelled. Returns at once."""

    def drop(self) -> None:
        """Cancel, and free all state once nobody reads it."""
