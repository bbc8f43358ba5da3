"""The progress of a view with a refresh schedule: what it still has to append to its shard.

    refreshes   ······R1··········R2·········R3······          the schedule
    changes     ··x·x····y··x··y·······x···z·│                 staged up to the dataflow's frontier
    written     ──────┴──────[U                                the shard's upper, between two refreshes
    an append                [U ──┴──────────│)                x, y, y, x at R2; z waits for R3

The upper follows the inputs: nothing changes before the next refresh, so the shard is complete as far as the inputs
are, and no step is needed (`step_goal`). A change is written at the first refresh at or after its time.

A revision's first write is a refresh too: where the shard was last written under an older term, or never. Otherwise an
edit would show only at the next scheduled refresh, and a new view would be empty until then. The table's upper and term
of one version decide that. An append sets the term and moves the upper together, so a writer whose expected upper is
right has seen the right term, and all replicas of a revision agree.

Where the dataflow computes the view anew at each refresh (dataflow/refreshes/full.py), a new progress takes the place
of this one (`anew`), and its first append corrects the shard.

Only the writer knows the time of that unscheduled refresh. A replica that never wins finds the shard equal only after a
scheduled one. It compares the view at that refresh with the shard after it, once per refresh: a difference stays until
the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_protocol.frontier import EMPTY_SENTINEL
from tidemark_replica.sinks.sink_progress import AppendAttempt, CompactionInput, Comparison, SinkProgress, Staged
from tidemark_replica.sinks.table.refresh_times import NEVER, RefreshTimes


class RefreshProgress(SinkProgress):
    """Times are encoded frontiers: 2^63-1 is the empty one."""

    def __init__(self, as_of: int, new_commit_id: Callable[[], str], refreshes: RefreshTimes) -> None:
        super().__init__(as_of, new_commit_id)
        self._refreshes, self._inputs, self._is_blank = refreshes, as_of, False
        self._unplanned = self._different_at = -1

    def step_goal(self, upper: int) -> int:
        """The frontier just after the last refresh before `upper`; `upper` itself before the first write of this
        revision."""
        self._inputs = max(self._inputs, upper)
        if not self.is_own or upper == EMPTY_SENTINEL:
            return upper
        return self._refreshes.last(upper - 1) + 1

    @property
    def settled_until(self) -> int | None:
        """The first refresh at or after the frontier, or NEVER. None: the shard lacks an earlier one, was last written
        under another term, or the outcome of an append is unknown."""
        if not self.is_own or self.upper is None or self.is_pending:
            return None
        return None if self._refreshes.last(self.frontier - 1) >= self.upper else self._refreshes.next(self.frontier)

    def next_refresh(self, at: int) -> int:
        return self._refreshes.next(at)

    def has_all_before(self, time: int) -> bool | None:
        return self.settled_until == time if self.is_own else None

    def anew(self, as_of: int, *, is_blank: bool = False) -> RefreshProgress:
        """The progress of a view that is computed anew from `as_of`: nothing is staged or synced. `is_blank`: nothing
        will be staged before the next refresh either, so there is nothing to correct the shard by."""
        progress = RefreshProgress(as_of, self._new_commit_id, self._refreshes)
        progress.term, progress._inputs, progress._is_blank = self.term, max(self._inputs, as_of), is_blank
        if self.upper is not None:
            progress.observe(self.upper, self._observed_term)
        return progress

    def _is_overwritten(self, seen: int, term: int) -> bool:
        """Whether another writer corrected the shard. One of this revision counts, too: its refresh is unknown here."""
        return self._synced_term < min(seen, term)

    def stage(self, staged: Staged) -> None:
        """Releases output without updates: it need not wait for the next refresh."""
        super().stage(staged)
        if staged.delta is None or not staged.delta.files:
            self._staged.pop()
            staged.release()

    @property
    def reach(self) -> int:
        """The frontier up to which the shard's contents are known: the next refresh that is not staged."""
        ahead = self._refreshes.next(self.frontier) if self.frontier != EMPTY_SENTINEL else NEVER
        if ahead != NEVER:
            return max(self.frontier, min(self._inputs, ahead))
        until, is_last = self._refreshes.until, self._refreshes.schedule.next(self.frontier) is None
        is_over = is_last or until is None or self._inputs >= until
        return EMPTY_SENTINEL if is_over else max(self.frontier, self._inputs)

    def _next(self, upper: int) -> AppendAttempt | None:
        start, refreshes = self._begin(upper)
        first = refreshes.next(start)
        planned = refreshes.unplanned is None and start == upper
        if (self.reach if planned else self.frontier) <= (upper if planned else first):
            return None
        if self._is_blank and first < self.reach:
            return None
        staged = tuple(self._staged) if first < self.reach else ()
        since = first if start > upper else None
        commit = self._new_commit_id()
        return AppendAttempt(
            upper,
            self.reach,
            start,
            not self.synced,
            staged,
            commit,
            self.term or 0,
            since,
            refreshes,
            self._written if self.synced else 0,
        )

    def _begin(self, upper: int) -> tuple[int, RefreshTimes]:
        """The time from which the contents are known, and the refreshes to write. Where the refresh that is due is
        before the as_of, its contents are unknown, and the times up to the next one are skipped."""
        start = max(upper, self._as_of)
        if not self.is_own:
            return start, self._refreshes.with_unplanned(start)
        if self._refreshes.next(upper) >= self._as_of:
            return upper, self._refreshes
        known = self._refreshes.next(start) != NEVER
        return start, self._refreshes if known else self._refreshes.with_unplanned(start)

    def resolved(self, append: AppendAttempt, *, won: bool, upper: int, term: int) -> None:
        if won and append.refreshes is not None and append.refreshes.unplanned is not None:
            self._unplanned = append.first_time
        super().resolved(append, won=won, upper=upper, term=term)

    def comparison(self) -> Comparison | None:
        """Compares the view at the last refresh with the shard since then."""
        if self.synced or self._is_blank or not self.upper or not self.is_own or self.upper == EMPTY_SENTINEL:
            return None
        last = self._refreshes.last(self.upper - 1)
        if last == self._different_at or not self._as_of <= last < self.frontier:
            return None
        return Comparison(last, self.upper - 1, tuple(self._staged))

    def found_different(self, comparison: Comparison) -> None:
        """The shard shows an unscheduled refresh, until the next scheduled one."""
        self._different_at = comparison.at

    def compaction_input(self) -> CompactionInput | None:
        """Includes output that waits for the next refresh. Output before the last refresh is kept apart, for the
        comparison."""
        if not self.upper or min(self.frontier, self.upper) <= self._as_of:
            return None
        at, last = min(self.frontier, self.upper) - 1, self._refreshes.last(self.upper - 1)
        return CompactionInput(at, tuple(self._staged), last, self._written if self.synced else 0)

    def compaction_due(self, rows: int) -> CompactionInput | None:
        """The input of a compaction that is due. One is due also once most of the hydration's output is in the
        shard: it is as large as the view, and the next refresh may be far."""
        begun = self._staged[0] if self.synced and self._staged else None
        if begun is not None and begun.lower == self._as_of < self._written < begun.upper:
            return self.compaction_input()
        return super().compaction_due(rows)

    @property
    def _written(self) -> int:
        """Changes before this time are in the shard."""
        return max(self._refreshes.last((self.upper or 0) - 1), self._unplanned) + 1
