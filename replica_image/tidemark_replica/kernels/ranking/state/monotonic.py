"""The monotonic state: the first rows alone, for inputs that only grow.

    chunk ──its own first rows──> scratch ─┐
                                           ├──first rows──> their changes: to the arrangement, and out
                        the arrangement ───┘

State: offset + limit rows per group. Cost of an update: the delta.

A row that is not among the first rows of its chunk, or of the arrangement, can never become one. So the state thins out
each chunk before it writes it, unless a later chunk may retract rows of this one: at hydration, where a snapshot may
still hold rows that cancel.

A retraction that remains is an error for ever, NON_MONOTONIC_INPUT: the rows that would move up have been forgotten.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.layout import file_hashes
from tidemark_replica.arrangement.rows.updates import Updates, make_updates, split_errors
from tidemark_replica.arrangement.spines.first_rows_reader import RankedRows, rank
from tidemark_replica.arrangement.spines.spine import RANGE_ROWS
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.ranking.first_rows import first_rows_changes
from tidemark_replica.kernels.ranking.ranking import Ranking, value_ordered_rows
from tidemark_replica.kernels.ranking.state.ranking_state import RankingState, RankingStateSpec
from tidemark_replica.values.error_text import error_text

NON_MONOTONIC = "NON_MONOTONIC_INPUT"


class MonotonicState(RankingState):
    """Keeps the rows of each group down to the ranking's last position."""

    def __init__(self, context: StepContext, state: RankingStateSpec, ranking: Ranking) -> None:
        super().__init__(context, state, replace(ranking, offset=0))
        self._consolidates = context.is_hydration
        self._state_runs = StepRuns(context, state.arrangement)
        self._retraction_errors: list[Updates] = []
        self._pending: list[Updates] = []

    def add(self, oks: Updates) -> None:
        rows = value_ordered_rows(oks, self._ranking.layout)
        if not self._consolidates:
            self._report_retractions(rows)
            rows = self._thinned(rows)
        self._runs.add(rows)

    def finish(self) -> Iterator[Updates]:
        if self._consolidates:
            for rows in self._runs.consolidated(RANGE_ROWS):
                self._report_retractions(rows)
        yield from self._retraction_errors

    def accept(self, ranked: RankedRows) -> None:
        self._pending += [split_errors(c)[0] for c in first_rows_changes(ranked, self._ranking, self._context.lower)]
        if sum(c.num_rows for c in self._pending) >= self._context.chunk_rows:
            self._keep_pending()

    def commit(self) -> None:
        self._keep_pending()
        self._runs.discard()
        self._state_runs.commit_state()

    def _keep_pending(self) -> None:
        if self._pending:
            self._state_runs.add(value_ordered_rows(pa.concat_batches(self._pending), self._ranking.layout))
        self._pending = []

    def _thinned(self, rows: Any) -> Any:
        """The changes of a chunk's first rows, as if the chunk were the whole collection."""
        layout = self._ranking.layout
        groups = group_rows(file_hashes(rows), [rows.column(1 + k) for k in layout.key])
        ranked = rank(rows, groups.ids(), layout, len(groups.starts))
        parts = [split_errors(c)[0] for c in first_rows_changes(ranked, self._ranking, self._context.lower)]
        return value_ordered_rows(pa.concat_batches(parts), layout) if parts else layout.empty

    def _report_retractions(self, rows: Any) -> None:
        """Note one errs row per retracted row of consolidated `rows`."""
        layout = self._ranking.layout
        diffs = np.asarray(rows.column(layout.weights[0]).to_numpy())
        negative = np.flatnonzero(diffs < 0)
        if len(negative):
            times, which = np.unique(np.asarray(rows.column(layout.time).to_numpy())[negative], return_inverse=True)
            counts = np.zeros(len(times), np.int64)
            np.subtract.at(counts, which, diffs[negative])
            texts = pa.array([error_text(NON_MONOTONIC, "top-k")] * len(times), pa.string())
            nulls = [pa.nulls(len(times), t) for t in layout.types]
            self._retraction_errors.append(make_updates(nulls, times, counts, texts))
