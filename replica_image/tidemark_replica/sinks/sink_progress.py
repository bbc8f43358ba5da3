"""What a materialized view still has to append to its shard, as a plain object.

    desired    as_of ──[ snapshot ][ step ][ step ]── frontier        staged in files, step by step
    persisted  0 ─────────────────────── upper                        the shard, also written by other replicas

    not synced   append `desired - persisted`, moved up to where the shard may still be written, to [upper, frontier)
    synced       append exactly the updates of [upper, frontier)

A sink is synced once it has seen the shard equal to what it wants, by its own append or by comparing. Then what
another replica appends is what this one would have (an operator's output is a function of its input alone), and is
only skipped.
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
    """All that the view changes by in [lower, upper); the first one also holds the contents at the as_of.

    `delta` None: nothing. `release` lets go of the files.
    """

    lower: int
    upper: int
    delta: SinkDelta | None
    release: Callable[[], None] = lambda: None
    errors: Mapping[int, Errors] = field(default_factory=dict)
    """The errors in it, by time."""


@dataclass(frozen=True)
class Append:
    """One attempt, retried under the same commit id and term until its outcome is known: what it is to write depends on
    the term, and whether it has landed may not be known.

    Updates are moved up to `no_earlier`, at or beyond the expected upper: with `correct`, by comparing with what is
    persisted; without, nothing before the expected upper is appended.

    `since`: where it leaves out times that nobody knows the contents of, the first one that it does not: nobody may
    ever read those before, so they are given up with the append itself. Where it begins at the expected upper there are
    none, and what is there stays readable.

    `refreshes` (table/refresh_progress.py): updates are then moved up to those, and left for later where these are
    not before the new upper. Those at times before `written` are in the shard already.
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
    def first(self) -> int:
        """The first time of which it may say anything."""
        return self.no_earlier if self.refreshes is None else self.refreshes.next(self.no_earlier)

    @property
    def syncs(self) -> bool:
        """Whether the shard is what the view is, once it has landed; else it only moves the upper."""
        return self.first < self.new_upper


@dataclass(frozen=True)
class Comparison:
    """Is the shard at time `read_at` what the view was at time `at`? `staged` is everything up to there, and perhaps
    beyond."""

    at: int
    read_at: int
    staged: tuple[Staged, ...]

    @property
    def deltas(self) -> tuple[SinkDelta, ...]:
        return _deltas(self.staged)


@dataclass(frozen=True)
class CompactionInput:
    """What is staged, to be put together (table/staged_compaction.py): no time before `at` need be told from it, but
    those up to `apart` from those after it. What is at times before `written` is needed no more."""

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
    """Times here are encoded frontiers: 2^63-1 is the empty one. `term`: under which it may write; None: not yet."""

    def __init__(self, as_of: int, new_commit_id: Callable[[], str], *, synced: bool = False) -> None:
        """`synced`: what is written is never in question."""
        self._as_of, self._new_commit_id = as_of, new_commit_id
        self._staged: deque[Staged] = deque()
        self._pending: Append | None = None
        self.frontier = as_of
        self.upper: int | None = None
        self.term: int | None = None
        self.synced = synced
        self._observed_term = 0
        self._synced_term = NO_TERM

    @property
    def has_diverged(self) -> bool:
        """It let go of what it had staged, as that was in the shard; then another revision wrote there, and nobody has
        put that right. What the shard holds is not known here, and cannot be corrected. While the outcome of an append
        is not known, what is seen may be its own."""
        return self._seems_diverged and not self.is_pending

    @property
    def is_superseded(self) -> bool:
        """It is lost, for all that is known, or is as soon as it may write again."""
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
        """Whoever writes under the present term is of this revision, and has corrected what it found."""
        return self._synced_term < seen < term

    @property
    def is_pending(self) -> bool:
        """An append has been begun, and its outcome is not known: what it takes must stay as it is."""
        return self._pending is not None

    def step_goal(self, upper: int) -> int:
        """All inputs of the view are complete so far. Up to where it has to be stepped."""
        return upper

    @property
    def reach(self) -> int:
        """Up to where what is staged may be written."""
        return self.frontier

    @property
    def waiting_rows(self) -> int:
        """How many updates are staged and not known to be in the shard."""
        return sum(s.delta.rows for s in self._staged if s.delta is not None)

    def stage(self, staged: Staged) -> None:
        if staged.lower != self.frontier:
            raise AssertionError(f"staged from {staged.lower}; expected from {self.frontier}")
        self._staged.append(staged)
        self.frontier = staged.upper

    def observe(self, upper: int, term: int) -> None:
        """The shard's upper as seen, and the term under which it was written then."""
        if self.upper is None or upper > self.upper:
            self._observed_term = term
        elif upper == self.upper:
            self._observed_term = max(self._observed_term, term)
        self.upper = upper if self.upper is None else max(self.upper, upper)
        if self._has_released and self._observed_term == self.term and not self._seems_diverged:
            self._synced_term = self._observed_term

    def next(self) -> Append | None:
        """What to append now, if anything. The same answer until it is `resolved`."""
        if self._pending is None and self.upper is not None and not self.has_diverged:
            self._pending = self._next(self.upper)
        return self._pending

    def _next(self, upper: int) -> Append | None:
        start = max(upper, self._as_of)  # not before the as_of, where our knowledge begins
        if self.reach <= start:
            return None
        staged = tuple(s for s in self._staged if s.upper > upper or not self.synced)
        since = start if start > upper else None
        return Append(upper, self.reach, start, not self.synced, staged, self._new_commit_id(), self.term or 0, since)

    def resolved(self, append: Append, *, won: bool, upper: int, term: int) -> None:
        """The attempt ended: it is in the shard, or another came first."""
        self._pending = None
        if won and append.syncs:
            self._mark_synced(append.term)
        self.observe(upper, term)

    def abandon(self) -> None:
        """The attempt has not landed, and never will: it was under a term that is over."""
        self._pending = None

    def comparison(self) -> Comparison | None:
        """What to compare while others write and this one never wins: files must not gather for ever."""
        whole = self.compaction_input()
        return None if whole is None or self.upper == EMPTY_SENTINEL else Comparison(whole.at, whole.at, whole.staged)

    def compaction_input(self) -> CompactionInput | None:
        """All that is staged, where it can be put together."""
        if self.synced or self.upper is None or min(self.frontier, self.upper) <= self._as_of:
            return None
        return CompactionInput(min(self.frontier, self.upper) - 1, tuple(self._staged))

    @property
    def base_rows(self) -> int:
        """Of the updates staged, those that are not made fewer by folding; 0 where nothing can be folded."""
        whole = self.compaction_input()
        if whole is None or not whole.staged or whole.staged[0].delta is None:
            return 0
        return whole.staged[0].delta.rows

    def compaction_due(self, rows: int) -> CompactionInput | None:
        """All that is staged, where beyond its base so much has gathered, and as much as the base, or many steps."""
        whole = self.compaction_input()
        if whole is None or not whole.deltas or len(whole.staged) == 1:
            return None
        many = self.waiting_rows - self.base_rows >= max(rows, self.base_rows)
        return whole if many or len(whole.staged) > STAGED_MAX else None

    def replace_staged(self, whole: CompactionInput, into: Staged) -> None:
        """`into` takes the place of what was staged then."""
        for _ in whole.staged:
            self._staged.popleft()
        self._staged.appendleft(into)

    def found_equal(self, term: int) -> None:
        """The comparison found no difference. `term`: the present one of when it began."""
        self._mark_synced(term)

    def found_different(self, comparison: Comparison) -> None:
        """Whoever writes next may put it right."""

    def _mark_synced(self, term: int) -> None:
        """The shard was what the view is, under that term. There may be another one by now."""
        if not self.synced or self._has_released:
            self.synced, self._synced_term = True, max(self._synced_term, term)

    def release(self) -> tuple[Staged, ...]:
        """What is needed no more, while nothing is being done with it. For a shard that is finished nothing is."""
        over = self.upper == EMPTY_SENTINEL
        if self.upper is None or self._pending is not None or not (self.synced or over):
            return ()
        gone = []
        while self._staged and (over or self._staged[0].upper <= self._written):
            gone.append(self._staged.popleft())
        return tuple(gone)

    @property
    def _written(self) -> int:
        """What is staged for times before is in the shard."""
        return self.upper or 0


def _deltas(staged: tuple[Staged, ...]) -> tuple[SinkDelta, ...]:
    return tuple(each.delta for each in staged if each.delta is not None)
