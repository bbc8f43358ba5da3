"""What a kernel is given for one step, and what it hands back.

    StepContext   the step's bounds, the manifests it reads, how to open them, and a BatchWriter
    BatchWriter   writes batch files under the step's name and collects their refs

A written batch counts only once the driver has put its ref into a manifest. Files of a step that failed, was cancelled
or ran twice carry that step's name and an attempt of their own, so nobody ever writes to another's file and the store
can sweep them away.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NewType

from tidemark_replica.arrangement.batches.batch import BatchRef, Span, is_small, write_batch, write_small_batch
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
"""In a store's directory, while there is so little room in scratch."""
MUCH_BYTES = 64 << 20
LITTLE_BYTES = 4 << 20
"""A merge that reads no more is done however little room there is: it is what makes room."""
CHUNK_ROWS = 1 << 18
HYDRATION_CHUNKS = 4


class BatchWriter:
    """Writes one attempt's batches; `written` lists, by arrangement, the refs to be committed.

    `alive_file`: a file that is there for as long as anybody waits for the step. A task can outlive its job: once the
    file is gone, it raises StepAbandoned at its next batch and leaves none behind.

    `bytes_left`: what may be written; None: any amount. Where there is a limit, the files SCARCE and FULL in the
    directory say how much is left of scratch as a whole, now. `large`: from its first byte on. `frees_space`: it
    takes little, and leaves more: it may always.
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

    @property
    def is_step_alive(self) -> bool:
        """Whether somebody still waits for the step."""
        return self._wanted is None or os.path.exists(self._wanted)

    def while_step_alive(self, parts: Iterable[Any]) -> Iterator[Any]:
        """The parts of something long, as long as somebody waits for it; raises StepAbandoned from then on, and
        DiskLimitExceeded once there is no room for it."""
        for part in parts:
            if not self.is_step_alive:
                raise StepAbandoned(f"nobody waits for {self.name} any more")
            self.check_space()
            yield part

    def detached(self) -> "BatchWriter":
        """A writer of the same step whose batches are not committed with it."""
        left, much = self._bytes_left, self._takes_much
        return BatchWriter(self._directory, self._step, bytes_left=left, alive_file=self._wanted, large=much)

    def write_scratch(
        self, arrangement: ArrangementId, layout: Layout, bucket: int, span: Span, segments: Iterable[Any]
    ) -> BatchRef | None:
        """Write a batch for this step's own use, until it is adopted; None when there are no rows."""
        file = self._next_file(arrangement)
        fitting = self._fitting(arrangement, self.while_step_alive(segments))
        return self._kept(write_batch(self._directory, file, layout, bucket, span, fitting), file)

    def write_run(self, arrangement: ArrangementId, layout: Layout, bucket: int, span: Span, rows: Any) -> BatchRef:
        """The same of one segment that has rows."""
        file = self._next_file(arrangement)
        if is_small(rows):
            ref: BatchRef | None = write_small_batch(self._directory, file, layout, bucket, span, rows)
        else:
            ref = write_batch(self._directory, file, layout, bucket, span, self._fitting(arrangement, [rows]))
        assert ref is not None, "a run has rows"
        self._kept(ref, file)
        return ref

    def _fitting(self, arrangement: ArrangementId, segments: Iterable[Any]) -> Iterator[Any]:
        """A file's segments, as long as they fit what is left: what does not is not written at all."""
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

    def _kept(self, ref: BatchRef | None, file: str) -> BatchRef | None:
        """What has been written, if it is wanted and may stay."""
        if not self.is_step_alive:
            (self._directory / file).unlink(missing_ok=True)
            raise StepAbandoned(f"nobody waits for {self.name} any more")
        if ref is not None:
            try:
                self.spend(ref.bytes, f"arrangement {file.partition('/')[0]}")
            except DiskLimitExceeded:
                self.discard(ref)
                raise
        return ref

    def spend(self, size: int, what: str) -> None:
        """So much room is taken, until the step ends at least; raises DiskLimitExceeded where there is less."""
        self.check_space()
        if self._bytes_left is not None:
            self._bytes_left -= size
            self._spent += size
            if self._bytes_left < 0:
                raise _too_much(what, size)

    def check_space(self) -> None:
        """Raises DiskLimitExceeded where all of scratch together has no room left, whoever has taken it: what takes
        much of it ends first, so that others can go on."""
        if self._bytes_left is None or self._makes_room:
            return
        much = self._takes_much or self._spent > MUCH_BYTES
        if os.path.exists(self._directory / FULL) or (much and os.path.exists(self._directory / SCARCE)):
            raise DiskLimitExceeded(
                f"hardly any scratch space is left, of which {self._step} has taken {self._spent} bytes: give the "
                "replica more scratch, or keep less state"
            )

    def adopt(self, arrangement: ArrangementId, ref: BatchRef) -> None:
        """Commit a batch with the step that was written as scratch."""
        self.written.setdefault(arrangement, []).append(ref)

    def discard(self, ref: BatchRef) -> None:
        """Take away a scratch batch; whoever has it mapped can still read it."""
        (self._directory / ref.file).unlink(missing_ok=True)
        if self._bytes_left is not None:
            self._bytes_left += ref.bytes


def _too_much(what: str, size: int) -> DiskLimitExceeded:
    return DiskLimitExceeded(
        f"{what} needs {size} bytes of scratch space more than is allowed: give the replica more scratch, or keep "
        "less state"
    )


def merge(task: Merge, layout: Layout, cache: BatchCache, writer: BatchWriter) -> BatchRef | None:
    """Carry out a planned merge; None when everything cancelled. `spine.apply` puts the result in place."""
    runs = [segment for ref in task.batches for segment in cache.segments(ref, layout)]
    merged = coalesce(writer.while_step_alive(merge_segments(runs, layout, task.since)))
    if sum(ref.rows for ref in task.batches) >= SMALL_ROWS:
        return writer.write_scratch(task.arrangement, layout, task.batches[0].bucket, task.span, merged)
    rows = list(merged)
    if len(rows) != 1:
        return writer.write_scratch(task.arrangement, layout, task.batches[0].bucket, task.span, rows)
    ref = writer.write_run(task.arrangement, layout, task.batches[0].bucket, task.span, rows[0])
    cache.keep(ref, rows[0])
    return ref


@dataclass(frozen=True)
class StepContext:
    """One step of a dataflow, [lower, upper), as one task sees it.

    At hydration `lower` is the as_of, and inputs come with every time advanced to it.
    """

    lower: int
    upper: int
    is_hydration: bool
    manifests: Mapping[ArrangementId, Manifest]
    cache: BatchCache
    writer: BatchWriter
    share: TaskShare = WHOLE_SHARE
    """The range of hashes that this task's input was exchanged to."""
    chunk_rows: int = CHUNK_ROWS
    until: int | None = None
    """The dataflow's: updates from then on are left out."""

    @property
    def run_rows(self) -> int:
        """How many rows are sorted together before they are written: of a hydration more, so that less is merged."""
        return self.chunk_rows * HYDRATION_CHUNKS if self.is_hydration else self.chunk_rows

    @property
    def limit(self) -> int:
        """Updates of the step have times below it: `upper`, or where the dataflow ends."""
        return self.upper if self.until is None else min(self.upper, self.until)

    @property
    def before(self) -> int:
        """Arranged updates below this time were processed by earlier steps: all of [0, lower), or at hydration none."""
        return 0 if self.is_hydration else self.lower

    @property
    def span(self) -> Span:
        """What this step's batches cover."""
        return Span(self.lower, self.upper, self.lower)

    def manifest(self, arrangement: ArrangementId) -> Manifest:
        """The manifest this step has pinned."""
        found = self.manifests.get(arrangement)
        if found is None:
            raise UnknownArrangement(f"the step over [{self.lower}, {self.upper}) pins no arrangement {arrangement}")
        return found

    def trace(self, arrangement: ArrangementId) -> Trace:
        """The pinned arrangement, to be read."""
        return Trace(self.manifest(arrangement), self.cache)

    @property
    def has_the_only_group(self) -> bool:
        """Whether this task is the one that sees the rows of a group without a key."""
        return self.share.has(int(key_hashes([], 1)[0]))
