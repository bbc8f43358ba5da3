"""One step, as a kernel sees it, and the writer of its batches.

    StepContext   the step's bounds, the pinned manifests, the open batches, and a BatchWriter
    BatchWriter   writes batch files under the step's name and collects their refs

A written batch counts once the driver has put its ref into a manifest. Every attempt of a step writes files of its own
name, so no attempt writes to another's file, and the store can sweep the files of attempts that do not count.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NewType

from tidemark_replica.arrangement.batches.batch import BatchRef, BatchTimes, is_small, write_batch, write_small_batch
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.errors import DiskLimitExceeded, StepAbandoned, UnknownArrangement
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.task_share import WHOLE_SHARE, TaskShare
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import SMALL_ROWS, Merge, coalesce, merge_segments
from tidemark_replica.arrangement.spines.trace import Trace

StepId = NewType("StepId", str)

SCARCE, FULL = ".scarce", ".full"
"""Names of files in a store's directory that exist while scratch space is scarce, or used up."""
MUCH_BYTES = 64 << 20
LITTLE_BYTES = 4 << 20
"""A merge that reads at most so many bytes runs however little space is left, since it frees space."""
CHUNK_ROWS = 1 << 18
HYDRATION_CHUNKS = 4


class BatchWriter:
    """Writes the batches of one attempt of a step. `written` has the refs to be committed, by arrangement.

    `alive_file`: a file that exists while the step is alive. A task can outlive its job: once the file is gone, the
    writer raises StepAbandoned at the next batch and leaves no file behind.

    `bytes_left`: the bytes that may be written; None: any number. With a limit, the files SCARCE and FULL in the
    directory say how much is left of scratch as a whole. `large`: the writer counts as large from its first byte on.
    `frees_space`: it writes little and frees more, so these files do not stop it.
    """

    def __init__(
        self,
        directory: Path,
        step: StepId,
        *,
        bytes_left: int | None = None,
        alive_file: Path | None = None,
        large: bool = False,
        frees_space: bool = False,
    ) -> None:
        self._directory, self._step, self._wanted = directory, step, alive_file
        self.name = f"{step}-{uuid.uuid4().hex[:12]}"
        self._files = 0
        self._bytes_left, self._takes_much, self._makes_room, self._spent = bytes_left, large, frees_space, 0
        self.written: dict[ArrangementId, list[BatchRef]] = {}
        self.states: set[ArrangementId] = set()
        """The arrangements that only their own operators read: from the step's last time on, once it is committed."""

    @property
    def is_step_alive(self) -> bool:
        """Whether the step has not been cancelled or dropped."""
        return self._wanted is None or os.path.exists(self._wanted)

    def while_step_alive(self, parts: Iterable[Any]) -> Iterator[Any]:
        """Yield the parts. Raises StepAbandoned once the step has ended, DiskLimitExceeded once scratch is used up."""
        for part in parts:
            if not self.is_step_alive:
                raise StepAbandoned(f"the step of {self.name} has been cancelled or dropped")
            self.check_space()
            yield part

    def detached(self) -> "BatchWriter":
        """A writer for the same step whose batches are not committed with it."""
        left, much = self._bytes_left, self._takes_much
        return BatchWriter(self._directory, self._step, bytes_left=left, alive_file=self._wanted, large=much)

    def write_scratch(
        self, arrangement: ArrangementId, layout: Layout, span: BatchTimes, segments: Iterable[Any]
    ) -> BatchRef | None:
        """Write a batch that is not committed unless it is adopted. Returns None if there are no rows.

        Raises DiskLimitExceeded, DiskFull, StepAbandoned.
        """
        file = self._next_file(arrangement)
        fitting = self._fitting(arrangement, self.while_step_alive(segments))
        return self._account_for(write_batch(self._directory, file, layout, span, fitting), file)

    def write_run(self, arrangement: ArrangementId, layout: Layout, span: BatchTimes, rows: Any) -> BatchRef:
        """Write one segment with rows, as `write_scratch` does."""
        file = self._next_file(arrangement)
        if is_small(rows):
            ref: BatchRef | None = write_small_batch(self._directory, file, layout, span, rows)
        else:
            ref = write_batch(self._directory, file, layout, span, self._fitting(arrangement, [rows]))
        assert ref is not None, "a run has rows"
        self._account_for(ref, file)
        return ref

    def _fitting(self, arrangement: ArrangementId, segments: Iterable[Any]) -> Iterator[Any]:
        """Yield the segments of a file. Raises DiskLimitExceeded before one that exceeds the space left."""
        size = 0
        for segment in segments:
            if self._bytes_left is not None:
                size += segment.nbytes
                if size > self._bytes_left:
                    raise _too_much(f"arrangement {arrangement}", size - self._bytes_left)
            yield segment

    def _next_file(self, arrangement: ArrangementId) -> str:
        self._files += 1
        return f"{arrangement}/{self.name}-{self._files}.arrow"

    def _account_for(self, ref: BatchRef | None, file: str) -> BatchRef | None:
        """Account for a written file. Deletes it and raises if the step is not alive or the space is used up."""
        if not self.is_step_alive:
            (self._directory / file).unlink(missing_ok=True)
            raise StepAbandoned(f"the step of {self.name} has been cancelled or dropped")
        if ref is not None:
            try:
                self.spend(ref.bytes, f"arrangement {file.partition('/')[0]}")
            except DiskLimitExceeded:
                self.discard(ref)
                raise
        return ref

    def spend(self, size: int, what: str) -> None:
        """Account for `size` bytes of scratch space. Raises DiskLimitExceeded if less is left."""
        self.check_space()
        if self._bytes_left is not None:
            self._bytes_left -= size
            self._spent += size
            if self._bytes_left < 0:
                raise _too_much(what, size)

    def check_space(self) -> None:
        """Raise DiskLimitExceeded if scratch as a whole is used up, or scarce and this writer has written much.

        Large steps end first, so that small ones can go on.
        """
        if self._bytes_left is None or self._makes_room:
            return
        much = self._takes_much or self._spent > MUCH_BYTES
        if os.path.exists(self._directory / FULL) or (much and os.path.exists(self._directory / SCARCE)):
            raise DiskLimitExceeded(
                f"scratch space is used up; step {self._step} has written {self._spent} bytes of it: give the "
                "replica more scratch, or keep less state"
            )

    def adopt(self, arrangement: ArrangementId, ref: BatchRef) -> None:
        """Commit a scratch batch with the step."""
        self.written.setdefault(arrangement, []).append(ref)

    def discard(self, ref: BatchRef) -> None:
        """Delete a scratch batch. A reader that has mapped it can still read it."""
        (self._directory / ref.file).unlink(missing_ok=True)
        if self._bytes_left is not None:
            self._bytes_left += ref.bytes


def _too_much(what: str, size: int) -> DiskLimitExceeded:
    return DiskLimitExceeded(
        f"{what} needs {size} bytes of scratch space more than is left: give the replica more scratch, or keep "
        "less state"
    )


def merge(task: Merge, layout: Layout, cache: BatchCache, writer: BatchWriter) -> BatchRef | None:
    """Carry out a planned merge. Returns None if everything cancelled. `spine.apply` puts the result in place."""
    runs = [segment for ref in task.batches for segment in cache.segments(ref, layout)]
    merged = coalesce(writer.while_step_alive(merge_segments(runs, layout, task.since)))
    if sum(ref.rows for ref in task.batches) >= SMALL_ROWS:
        return writer.write_scratch(task.arrangement, layout, task.span, merged)
    rows = list(merged)
    if len(rows) != 1:
        return writer.write_scratch(task.arrangement, layout, task.span, rows)
    ref = writer.write_run(task.arrangement, layout, task.span, rows[0])
    cache.keep(ref, rows[0])
    return ref


@dataclass(frozen=True)
class StepContext:
    """One step of a dataflow over [lower, upper), as one task sees it.

    At hydration `lower` is the as_of, and the times of all inputs are advanced to it.
    """

    lower: int
    upper: int
    is_hydration: bool
    manifests: Mapping[ArrangementId, Manifest]
    cache: BatchCache
    writer: BatchWriter
    share: TaskShare = WHOLE_SHARE
    """The range of hashes that an exchange gave to this task."""
    chunk_rows: int = CHUNK_ROWS
    until: int | None = None
    """The dataflow's until: updates at or after it are not computed."""
    is_only_step: bool = False
    """Whether the dataflow has one time, the as_of: no later step reads what operators keep."""
    is_later_round: bool = False
    """Whether an earlier round of a loop at this time has put out what was due."""
    inputs_add_only: bool = False
    """Whether the step has one time, the as_of, and the inputs are append-only tables, which have no retractions."""

    @property
    def run_rows(self) -> int:
        """Rows that are sorted together before they are written: more at hydration, so that less is merged."""
        return self.chunk_rows * HYDRATION_CHUNKS if self.is_hydration else self.chunk_rows

    @property
    def limit(self) -> int:
        """The end of the step's times: `upper`, or the dataflow's until."""
        return self.upper if self.until is None else min(self.upper, self.until)

    @property
    def before(self) -> int:
        """The end of the times that earlier steps processed: `lower`, or 0 at hydration."""
        return 0 if self.is_hydration else self.lower

    @property
    def span(self) -> BatchTimes:
        """The span of this step's batches."""
        return BatchTimes(self.lower, self.upper, self.lower)

    def manifest(self, arrangement: ArrangementId) -> Manifest:
        """The pinned manifest of an arrangement. Raises UnknownArrangement."""
        found = self.manifests.get(arrangement)
        if found is None:
            raise UnknownArrangement(f"the step over [{self.lower}, {self.upper}) pins no arrangement {arrangement}")
        return found

    def trace(self, arrangement: ArrangementId) -> Trace:
        """The trace of a pinned arrangement."""
        return Trace(self.manifest(arrangement), self.cache)

    @property
    def has_the_only_group(self) -> bool:
        """Whether this task has the hash of the only group of an operator without a key."""
        return self.share.has(int(key_hashes([], 1)[0]))
