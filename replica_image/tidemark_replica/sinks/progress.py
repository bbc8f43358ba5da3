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

from tidemark_replica.erroring import Errors
from tidemark_replica.render.contract import SinkDelta

STAGED_MOST = 1000


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
    """One attempt, retried under the same commit id until its outcome is known.

    Updates are moved up to `no_earlier`, at or beyond the expected upper: with `correct`, by comparing with what is
    persisted; without, nothing before the expected upper is appended.
    """

    expected_upper: int
    new_upper: int
    no_earlier: int
    correct: bool
    staged: tuple[Staged, ...]
    commit_id: str

    @property
    def deltas(self) -> tuple[SinkDelta, ...]:
        return tuple(staged.delta for staged in self.staged if staged.delta is not None)

    @property
    def since(self) -> int | None:
        """Where it leaves out times that nobody knows the contents of, the first one that it does not: nobody may ever
        read those before, so they are given up with the append itself. Where it begins at the expected upper there are
        none, and what is there stays readable."""
        return self.no_earlier if self.no_earlier > self.expected_upper else None


@dataclass(frozen=True)
class Comparison:
    """Is the shard at time `at` what the view was then? `staged` is everything up to there, and perhaps beyond."""

    at: int
    staged: tuple[Staged, ...]

    @property
    def deltas(self) -> tuple[SinkDelta, ...]:
        return tuple(staged.delta for staged in self.staged if staged.delta is not None)


class SinkProgress:
    """Times here are encoded frontiers: 2^63-1 is the empty one."""

    def __init__(self, as_of: int, new_commit_id: Callable[[], str], *, synced: bool = False) -> None:
        """`synced`: what is written is never in question."""
        self._as_of, self._new_commit_id = as_of, new_commit_id
        self._staged: deque[Staged] = deque()
        self._pending: Append | None = None
        self.frontier = as_of
        self.upper: int | None = None
        self.synced = synced

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

    def observe(self, upper: int) -> tuple[Staged, ...]:
        """The shard's upper as seen; returns what is needed no more."""
        self.upper = upper if self.upper is None else max(self.upper, upper)
        return self._release()

    def next(self) -> Append | None:
        """What to append now, if anything. The same answer until it is `resolved`."""
        reach = self.reach
        if self._pending is None and self.upper is not None and reach > max(self.upper, self._no_earlier):
            staged = tuple(s for s in self._staged if s.upper > self.upper or not self.synced)
            self._pending = Append(self.upper, reach, self._no_earlier, not self.synced, staged, self._new_commit_id())
        return self._pending

    def resolved(self, append: Append, *, won: bool, upper: int) -> tuple[Staged, ...]:
        """The attempt ended: it is in the shard, or another came first. Returns what is needed no more."""
        self._pending = None
        self.synced = self.synced or won
        return self.observe(upper)

    def comparison(self) -> Comparison | None:
        """What to compare while others write and this one never wins: files must not gather for ever."""
        if self.synced or self.upper is None or min(self.frontier, self.upper) <= self._as_of:
            return None
        return Comparison(min(self.frontier, self.upper) - 1, tuple(self._staged))

    @property
    def base_rows(self) -> int:
        """Of the updates staged, those that are not made fewer by folding; 0 where nothing can be folded."""
        if self.comparison() is None or self._staged[0].delta is None:
            return 0
        return self._staged[0].delta.rows

    def to_fold(self, rows: int) -> Comparison | None:
        """All that is staged, where beyond its base so much has gathered, and as much as the base, or many steps."""
        whole = self.comparison()
        if whole is None or not whole.deltas or len(whole.staged) == 1:
            return None
        many = self.waiting_rows - self.base_rows >= max(rows, self.base_rows)
        return whole if many or len(whole.staged) > STAGED_MOST else None

    def folded(self, whole: Comparison, into: Staged) -> None:
        """`into` takes the place of what was staged then."""
        for _ in whole.staged:
            self._staged.popleft()
        self._staged.appendleft(into)

    def found_equal(self) -> tuple[Staged, ...]:
        """The comparison found no difference. Returns what is needed no more."""
        self.synced = True
        return self._release()

    @property
    def _no_earlier(self) -> int:
        """The first time that may be written: not before the as_of, where our knowledge begins."""
        return max(self.upper or 0, self._as_of)

    def _release(self) -> tuple[Staged, ...]:
        if not self.synced or self.upper is None or self._pending is not None:
            return ()
        gone = []
        while self._staged and self._staged[0].upper <= self.upper:
            gone.append(self._staged.popleft())
        return tuple(gone)
