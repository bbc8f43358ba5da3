"""The sorted runs that one step has written to one arrangement so far, chunk by chunk.

    chunk ──> run (level 0)          eight runs of a level ──merge──> one run of the next

A small step is one chunk and writes one file. A hydration writes many; merging eight at a time keeps probes
short, and costs about one more rewrite of a row.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidemark_replica.arrangement.batches.batch import BatchRef, Segment
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.spine import coalesce, hash_ranges, merge_segments
from tidemark_replica.arrangement.step import StepContext

FAN_IN = 8
MAPPED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Run:
    ref: BatchRef | None
    """None: in memory alone."""
    level: int
    segments: tuple[Segment, ...]


class StepRuns:
    """The runs of one arrangement in one step. `commit` passes them to the step's writer.

    An operator's own state ends with `commit_state`: nobody reads it after a dataflow's only step.
    """

    def __init__(self, context: StepContext, arrangement: ArrangementId, layout: Layout | None = None) -> None:
        """`layout`: that of runs which end with the step, and are no batches of the arrangement. Small ones stay in
        memory."""
        self._context, self._arrangement, self._ends = context, arrangement, layout is not None
        self._layout = layout or context.manifest(arrangement).layout
        self._runs: list[_Run] = []

    def add(self, rows: Any) -> None:
        """Write a chunk: file rows, ascending by hash."""
        if not rows.num_rows:
            return
        context = self._context
        if self._ends and rows.nbytes < MAPPED_BYTES:
            self._runs.append(_Run(None, 0, (Segment.of(rows),)))
            self._merge_full_levels()
            return
        ref = context.writer.write_run(self._arrangement, self._layout, context.span, rows)
        self._runs.append(_Run(ref, 0, self._readable(ref, rows)))
        self._merge_full_levels()

    def _readable(self, ref: BatchRef, rows: Any) -> tuple[Segment, ...]:
        """The segments of a run: a small one in memory, a large one mapped from its file."""
        cache = self._context.cache
        if (kept := cache.keep(ref, rows)) is not None:
            return kept
        return (Segment.of(rows),) if rows.nbytes < MAPPED_BYTES else cache.segments(ref, self._layout)

    def segments(self) -> Iterator[Segment]:
        """The segments of all runs, to be probed."""
        for run in self._runs:
            yield from run.segments

    def consolidated(self, range_rows: int) -> Iterator[Any]:
        """Yield all rows consolidated, in ranges that ascend by hash. Each chunk must be consolidated."""
        segments = list(self.segments())
        if len(segments) == 1:  # a merged run may have several, and one key at the end of one and in the next
            yield from (part for (part,) in hash_ranges(segments, range_rows))
        else:
            layout, lower = self._layout, self._context.lower
            yield from merge_segments(segments, layout, lower, range_rows, whole_hashes=True)

    def commit(self) -> None:
        """Commit the runs as the step's batches."""
        for run in self._runs:
            assert run.ref is not None, "runs that end with the step are not committed"
            self._context.writer.adopt(self._arrangement, run.ref)

    def commit_state(self) -> None:
        """Commit the runs of a state that the operator alone reads; delete them in the dataflow's only step."""
        if self._context.is_only_step:
            self.discard()
        else:
            self.commit()

    def discard(self) -> None:
        """Delete the runs, which were for this step only."""
        self._discard(self._runs)

    def _discard(self, runs: Iterable[_Run]) -> None:
        for run in runs:
            if run.ref is not None:
                self._context.writer.discard(run.ref)

    def _merge_full_levels(self) -> None:
        runs = self._runs
        while len(runs) >= FAN_IN and runs[-FAN_IN].level == runs[-1].level:
            tail = runs[-FAN_IN:]
            del runs[-FAN_IN:]
            layout, segments = self._layout, [s for run in tail for s in run.segments]
            ref = self._write(coalesce(merge_segments(segments, layout, self._context.lower)))
            if ref is not None:
                runs.append(_Run(ref, tail[0].level + 1, self._context.cache.segments(ref, layout)))
            self._discard(tail)

    def _write(self, segments: Iterator[Any]) -> BatchRef | None:
        return self._context.writer.write_scratch(self._arrangement, self._layout, self._context.span, segments)
