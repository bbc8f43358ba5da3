"""The progress of a materialized view: what it still has to append to its shard, as a plain object.

    desired    as_of ──[ snapshot ][ step ][ step ]── frontier        staged in files, step by step
    persisted  0 ─────────────────────── upper                        the shard, also written by other replicas

    not synced   append `desired - persisted`, at times moved up to the first writable one, to [upper, frontier)
    synced       append exactly the updates of [upper, frontier)

A sink is synced once the shard was equal to the view: by its own append, or by a comparison. From then on it skips what
other replicas append, since an operator's output is a function of its input alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidemark_protocol.frontier import EMPTY_SENTINEL
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.table.refresh_times import RefreshTimes
from tidemark_replica.telemetry.error_status import Errors

STAGED_MAX = 1000
NO_TERM = -1


@dataclass(frozen=True)
class Staged:
    """All updates of the view in [lower, upper); the first one also has the contents at the as_of. `delta` None: no
    updates. `release` removes the files."""

    lower: int
    upper: int
    delta: SinkDelta | None
    release: Callable[[], None] = lambda: None
    errors: Mapping[int, Errors] = field(default_factory=dict)
    """The changes of errors in it, by time."""


@dataclass(frozen=True)
class AppendAttempt:
    """One attempt to append. It is retried with the same commit id and term until its outcome is known.

    Updates are moved up to `no_earlier`, at or beyond the expected upper: with `correct`, after comparing with the
    shard; without, no update before the expected upper is appended.

    `since`: set where the append skips times whose contents are unknown: the first time that is known. The append moves
    the shard's since there. None: no times are skipped.

    `refreshes` (table/refresh_progress.py): updates are moved up to these times, and left for later where that is not
    before the new upper. Updates at times before `written` are in the shard already.
    """

    expected_upper: int
    new_upper: int
    no_earlier: int
    correct: bool
    staged: tuple[Staged, ...]
    commit_id: str
    term: int
    since: int | None = None
    refreshes: RefreshTimes | None = None
    written: int = 0

    @property
    def deltas(self) -> tuple[SinkDelta, ...]:
        return _deltas(self.staged)

    @property
    def first_time(self) -> int:
        """The first time that the append can change."""
        return self.no_earlier if self.refreshes is None else self.refreshes.next(self.no_earlier)

    @property
    def syncs(self) -> bool:
        """Whether the shard equals the view once the append has landed; otherwise it only moves the upper."""
        return self.first_time < self.new_upper


@dataclass(frozen=True)
class Comparison:
    """Compares the shard at `read_at` with the view at `at`. `staged` has all updates up to there, and perhaps later
    ones."""

    at: int
    read_at: int
    staged: tuple[Staged, ...]

    @property
    def deltas(self) -> tuple[SinkDelta, ...]:
        return _deltas(self.staged)


@dataclass(frozen=True)
class CompactionInput:
    """Staged output to be compacted (table/staged_compaction.py): times before `at` need not be told apart, except
    those up to `apart` from later ones. Updates at times before `written` are dropped."""

    at: int
    staged: tuple[Staged, ...]
    apart: int = -1
    written: int = 0

    @property
    def lower(self) -> int:
        return max(self.staged[0].lower, self.written)

    @property
    def deltas(self) -> tuple[SinkDelta, ...]:
        return _deltas(self.staged)


class SinkProgress:
    """Times are encoded frontiers: 2^63-1 is the empty one. `term`: the writer term; None: the sink may not write
    yet."""

    def __init__(self, as_of: int, new_commit_id: Callable[[], str], *, synced: bool = False) -> None:
        """`synced`: the sink never compares with the shard."""
        self._as_of, self._new_commit_id = as_of, new_commit_id
        self._staged: deque[Staged] = deque()
        self._pending: AppendAttempt | None = None
        self.frontier = as_of
        self.upper: int | None = None
        self.term: int | None = None
        self.synced = synced
        self._observed_term = 0
        self._synced_term = NO_TERM

    @property
    def has_diverged(self) -> bool:
        """Whether another revision wrote the shard after this sink had released its staged output, and no sink of this
        revision has corrected that. The shard's contents are then unknown here. While an append's outcome is unknown,
        the write may be its own."""
        return self._seems_diverged and not self.is_pending

    @property
    def is_superseded(self) -> bool:
        """Whether the sink has diverged, or will once it may write again."""
        return self._seems_diverged or (
            self._has_released and self._observed_term > max(self._synced_term, self.term or 0)
        )

    @property
    def _seems_diverged(self) -> bool:
        return self._has_released and self.term is not None and self._is_overwritten(self._observed_term, self.term)

    @property
    def _has_released(self) -> bool:
        return self.synced and self._synced_term != NO_TERM

    def _is_overwritten(self, seen: int, term: int) -> bool:
        """Whether an older revision wrote after this sink was synced. A writer of the present term is of this revision
        and has corrected the shard."""
        return self._synced_term < seen < term

    @property
    def is_pending(self) -> bool:
        """Whether an append was begun whose outcome is unknown. The rows that it appends must not change."""
        return self._pending is not None

    def step_goal(self, upper: int) -> int:
        """The frontier that the dataflow must step to, given that its inputs are complete up to `upper`."""
        return upper

    @property
    def reach(self) -> int:
        """The frontier up to which staged output may be written."""
        return self.frontier

    @property
    def all_staged(self) -> tuple[Staged, ...]:
        return tuple(self._staged)

    @property
    def waiting_rows(self) -> int:
        """Staged updates that are not known to be in the shard."""
        return sum(s.delta.rows for s in self._staged if s.delta is not None)

    @property
    def is_own(self) -> bool:
        """Whether the shard was last written under the present term."""
        return bool(self.upper) and self.term is not None and self._observed_term == self.term

    def next_refresh(self, at: int) -> int:
        """The first time at or after `at` at which the shard can change."""
        return at

    def has_all_before(self, time: int) -> bool | None:
        """Whether the shard has all changes at times before `time`; None: that may never be so."""
        return self.upper is not None and self.upper >= time

    def anew(self, as_of: int, *, is_blank: bool = False) -> SinkProgress:
        """The progress of a view that is computed anew from `as_of`: nothing is staged or synced. `is_blank`: of a view
        with a refresh schedule."""
        progress = SinkProgress(as_of, self._new_commit_id)
        progress.term = self.term
        if self.upper is not None:
            progress.observe(self.upper, self._observed_term)
        return progress

    def stage(self, staged: Staged) -> None:
        if staged.lower != self.frontier:
            raise AssertionError(f"staged from {staged.lower}; expected from {self.frontier}")
        self._staged.append(staged)
        self.frontier = staged.upper

    def observe(self, upper: int, term: int) -> None:
        """Records the shard's upper, and the term under which it was written then."""
        if self.upper is None or upper > self.upper:
            self._observed_term = term
        elif upper == self.upper:
            self._observed_term = max(self._observed_term, term)
        self.upper = upper if self.upper is None else max(self.upper, upper)
        if self._has_released and self._observed_term == self.term and not self._seems_diverged:
            self._synced_term = self._observed_term

    def next(self) -> AppendAttempt | None:
        """The append to make now, or None. The same append until it is `resolved`."""
        if self._pending is None and self.upper is not None and not self.has_diverged:
            self._pending = self._next(self.upper)
        return self._pending

    def _next(self, upper: int) -> AppendAttempt | None:
        start = max(upper, self._as_of)  # contents before the as_of are unknown
        if self.reach <= start:
            return None
        staged = tuple(s for s in self._staged if s.upper > upper or not self.synced)
        since = start if start > upper else None
        return AppendAttempt(
            upper, self.reach, start, not self.synced, staged, self._new_commit_id(), self.term or 0, since
        )

    def resolved(self, append: AppendAttempt, *, won: bool, upper: int, term: int) -> None:
        """Ends the append: it has landed, or another came first."""
        self._pending = None
        if won and append.syncs:
            self._mark_synced(append.term)
        self.observe(upper, term)

    def abandon(self) -> None:
        """Ends an append that did not land and never will: a newer term has begun."""
        self._pending = None

    def comparison(self) -> Comparison | None:
        """The comparison to make where other writers always win; without it staged files would accumulate for ever."""
        compaction = self.compaction_input()
        return (
            None
            if compaction is None or self.upper == EMPTY_SENTINEL
            else Comparison(compaction.at, compaction.at, compaction.staged)
        )

    def compaction_input(self) -> CompactionInput | None:
        """All staged output, where it can be compacted."""
        if self.synced or self.upper is None or min(self.frontier, self.upper) <= self._as_of:
            return None
        return CompactionInput(min(self.frontier, self.upper) - 1, tuple(self._staged))

    @property
    def base_rows(self) -> int:
        """Staged updates that compaction cannot reduce; 0 where nothing can be compacted."""
        compaction = self.compaction_input()
        if compaction is None or not compaction.staged or compaction.staged[0].delta is None:
            return 0
        return compaction.staged[0].delta.rows

    def compaction_due(self, rows: int) -> CompactionInput | None:
        """All staged output, if at least `rows` updates and as many as the base have accumulated, or many steps."""
        compaction = self.compaction_input()
        if compaction is None or not compaction.deltas or len(compaction.staged) == 1:
            return None
        many = self.waiting_rows - self.base_rows >= max(rows, self.base_rows)
        return compaction if many or len(compaction.staged) > STAGED_MAX else None

    def replace_staged(self, compaction: CompactionInput, into: Staged) -> None:
        """Replaces the compacted output by `into`."""
        for _ in compaction.staged:
            self._staged.popleft()
        self._staged.appendleft(into)

    def found_equal(self, term: int) -> None:
        """The comparison found no difference. `term`: the present term when it began."""
        self._mark_synced(term)

    def found_different(self, comparison: Comparison) -> None:
        """The comparison found a difference; a later append may correct it."""

    def _mark_synced(self, term: int) -> None:
        """The shard was equal to the view under `term`, which may have ended."""
        if not self.synced or self._has_released:
            self.synced, self._synced_term = True, max(self._synced_term, term)

    def release(self) -> tuple[Staged, ...]:
        """Staged output that is not needed any more. All of it where the shard is finished."""
        over = self.upper == EMPTY_SENTINEL
        if self.upper is None or self._pending is not None or not (self.synced or over):
            return ()
        gone = []
        while self._staged and (over or self._staged[0].upper <= self._written):
            gone.append(self._staged.popleft())
        return tuple(gone)

    @property
    def _written(self) -> int:
        """Staged output at times before this is in the shard."""
        return self.upper or 0


def _deltas(staged: tuple[Staged, ...]) -> tuple[SinkDelta, ...]:
    return tuple(each.delta for each in staged if each.delta is not None)
