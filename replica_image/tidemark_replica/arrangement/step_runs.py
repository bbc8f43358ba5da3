"""The sorted runs that one step has written to one arrangement so far, chunk by chunk.

    chunk ──> run (level 0)          eight runs of a level ──merge──> one run of the next

A small step is one chunk and writes one file, at its end. A hydration writes many; merging eight at a time keeps
probes short, and costs about one more rewrite of a row.

An operator's own state is read from the step's last time on once the step is committed. So at the end of a step with
several times, many rows that are not written yet are moved to that time and consolidated before they are written: no
later merge rewrites them for that.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemark_replica.arrangement.batches.batch import BatchRef, Segment
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import bytes_at_most
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.spine import SMALL_ROWS, coalesce, hash_ranges, merge_segments
from tidemark_replica.arrangement.step import StepContext

FAN_IN = 8
MAPPED_BYTES = 1 << 20
"""A run of fewer bytes is not read from its file while the step lasts."""


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
        """Keep a chunk: file rows, ascending by hash. A large one is written now; in a hydration a small one is, too,
        unless the runs end with the step."""
        if not rows.num_rows:
            return
        waits = self._ends or not self._context.is_hydration
        run = _Run(None, 0, (Segment.of(rows),))
        self._runs.append(run if waits and bytes_at_most(rows) < MAPPED_BYTES else self._written(run))
        self._merge_full_levels()

    def _written(self, run: _Run) -> _Run:
        """The run in a file."""
        if run.ref is not None:
            return run
        rows = run.segments[0].rows
        ref = self._context.writer.write_run(self._arrangement, self._layout, self._context.span, rows)
        return _Run(ref, run.level, self._readable(ref, rows))

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
        assert not self._ends, "runs that end with the step are not committed"
        for run in map(self._written, self._runs):
            assert run.ref is not None
            self._context.writer.adopt(self._arrangement, run.ref)

    def commit_state(self) -> None:
        """Commit the runs of a state that the operator alone reads; delete them in the dataflow's only step."""
        if self._context.is_only_step:
            self.discard()
        else:
            self._advance()
            self._context.writer.states.add(self._arrangement)
            self.commit()

    def _advance(self) -> None:
        """Move many rows that wait to be written to the step's last time, and consolidate them."""
        segments = [segment for run in self._runs if run.ref is None for segment in run.segments]
        rows = sum(len(segment.hashes) for segment in segments)
        if rows < SMALL_ROWS or self._have_one_time(segments):
            return
        merged = coalesce(merge_segments(segments, self._layout, self._context.upper - 1))
        written = [run for run in self._runs if run.ref is not None]
        self._runs = [*written, *(_Run(None, 0, (Segment.of(rows),)) for rows in merged)]

    def _have_one_time(self, segments: Iterable[Segment]) -> bool:
        times = [np.asarray(segment.rows.column(self._layout.time).to_numpy()) for segment in segments]
        return min(int(each.min()) for each in times) == max(int(each.max()) for each in times)

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
