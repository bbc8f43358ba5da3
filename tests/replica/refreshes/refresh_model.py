"""A table, replicas of revisions that compete for it, and what it must hold (test_refresh_progress.py).

The table stands in for a shard, with its rules (upper, term, commit ids); what decides, and what moves times, is the
code at work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa

from tidemark_persist import DIFF, ERROR, TIME
from tidemark_protocol.frontier import EMPTY_SENTINEL
from tidemark_replica.sinks.sink_progress import AppendAttempt, CompactionInput, Staged
from tidemark_replica.sinks.table.refresh_progress import RefreshProgress
from tidemark_replica.sinks.table.refresh_times import NEVER, RefreshTimes
from tidemark_replica.sinks.table.shard_updates import Rows, compacted, moved

Update = tuple[int, int, int]
"""Row, time, diff."""
ROWS = Rows(
    pa.schema([("n", pa.int64()), (TIME, pa.int64()), (DIFF, pa.int64()), (ERROR, pa.string())]),
)
COMMITS = count()


def contents(updates: Iterable[Update], at: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for row, time, diff in updates:
        if time <= at:
            found[row] += diff
    return Counter({row: n for row, n in found.items() if n})


@dataclass(frozen=True)
class Delta:
    """The difference that a step's files hold."""

    updates: tuple[Update, ...]
    files: tuple[str, ...] = ("some",)

    @property
    def rows(self) -> int:
        return len(self.updates)

    def batches(self) -> Iterator[Any]:
        columns = [pa.array([u[i] for u in self.updates], pa.int64()) for i in range(3)]
        yield pa.RecordBatch.from_arrays([*columns, pa.nulls(len(self.updates), pa.string())], schema=ROWS.schema)


def updates_of(table: Any) -> list[Update]:
    return [(r["n"], r[TIME], r[DIFF]) for r in table.to_pylist()]


@dataclass(frozen=True)
class Revision:
    """A view's whole history (rows, each at its time), when it is refreshed, and the term that it may write under."""

    history: tuple[Update, ...]
    refreshes: RefreshTimes
    term: int

    @property
    def produced(self) -> list[Update]:
        until = self.refreshes.until
        return [u for u in self.history if until is None or u[1] < until]


@dataclass
class Table:
    """A shard, and by its own log of first writes, what it must hold."""

    upper: int = 0
    since: int = 0
    term: int = 0
    updates: list[Update] = field(default_factory=list)
    commits: dict[int, str] = field(default_factory=dict)
    writers: set[Replica] = field(default_factory=set)
    reigns: list[tuple[int, Revision]] = field(default_factory=list)
    """From when on a revision shows, beginning with an unplanned refresh."""
    _checked: tuple[int, ...] = ()

    def append(self, append: AppendAttempt, updates: list[Update], by: Replica) -> bool:
        """Whether it has landed, now or before."""
        if self.upper > append.expected_upper and self.commits.get(append.expected_upper) == append.commit_id:
            return True
        if append.term < self.term or self.upper != append.expected_upper:
            return False
        assert all(self.upper <= time < append.new_upper for _, time, _ in updates)
        first = self.upper == 0 or self.term < append.term
        planned = by.revision.refreshes
        last_is_missed = planned.next(self.upper) < by.as_of and planned.next(by.as_of) == NEVER
        if first or last_is_missed:
            self.reigns.append((max(self.upper, by.as_of), by.revision))
        elif updates:
            assert all(planned.next(t) == t for _, t, _ in updates)
        if append.since is not None:
            assert by.as_of > self.upper, "history is given up that is known"
            self.since = max(self.since, append.since)
        self.commits[append.expected_upper] = append.commit_id
        self.updates += updates
        self.upper, self.term = append.new_upper, append.term
        self.writers.add(by)
        return True

    def check(self) -> None:
        """Every time that can be read shows the query at the last refresh. Nothing is to be checked again where no
        append has landed since the last check."""
        state = (len(self.updates), self.since, self.upper, len(self.reigns))
        if state == self._checked:
            return
        self._checked = state
        for at in range(self.since, min(self.upper, 70)):
            began, revision = [(s, r) for s, r in self.reigns if s <= at][-1]
            refreshed = max(began, revision.refreshes.last(at))
            assert contents(self.updates, at) == contents(revision.produced, refreshed), f"at {at}"


class Replica:
    """One sink of a revision and its dataflow; what is in flight has been computed, and not tried yet."""

    def __init__(self, revision: Revision, as_of: int, table: Table, lag: int = 0, *, beside: bool = False) -> None:
        """`lag`: its inputs are seen later by so much; `beside` an index, it steps whenever they move."""
        self.revision, self.as_of, self.table, self.lag, self.beside = revision, as_of, table, lag, beside
        self.progress = RefreshProgress(as_of, lambda: f"c{next(COMMITS)}", revision.refreshes)
        self.processed, self.hydrated, self.steps = as_of, False, 0
        self.in_flight: tuple[AppendAttempt, list[Update]] | None = None
        self.vain: set[int] = set()

    def step(self, inputs: int) -> None:
        inputs -= self.lag
        if inputs <= self.as_of:
            return
        wanted = self.progress.step_goal(inputs)
        until = self.revision.refreshes.until
        goal = wanted if self.hydrated and not self.beside else inputs
        if goal <= self.processed:
            return
        if until is not None and goal >= until:
            goal = EMPTY_SENTINEL
        beyond = -1 if not self.hydrated else self.processed
        moved = [(n, max(t, self.as_of), d) for n, t, d in self.revision.produced if beyond <= t < goal]
        delta = Delta(tuple(moved), ("some",) if moved else ())
        self.progress.stage(Staged(self.processed, goal, delta))  # type: ignore[arg-type]
        self.processed, self.hydrated, self.steps = goal, True, self.steps + 1

    def observe(self) -> None:
        self.progress.observe(self.table.upper, self.table.term)
        self.release()

    def allow(self) -> None:
        self.progress.term = self.revision.term

    def release(self) -> None:
        if self.in_flight is None:
            self.progress.release()

    def begin(self, inputs: int) -> None:
        """An append, as a job does: the rows are made, if the upper is as expected."""
        self.progress.step_goal(max(inputs - self.lag, self.as_of))
        append = self.progress.next() if self.progress.term is not None and self.in_flight is None else None
        if append is None:
            return
        self.in_flight = append, self._rows(append) if self.table.upper == append.expected_upper else []

    def go(self, inputs: int) -> None:
        """It sees the table, steps, and has something in flight if there is anything to write."""
        self.observe()
        self.step(inputs)
        self.begin(inputs)

    def end(self, *, reply: bool) -> None:
        """The append in flight is tried; without a reply nobody here knows."""
        if self.in_flight is None:
            return
        (append, rows), self.in_flight = self.in_flight, None
        if self.table.upper == append.expected_upper:
            rows = self._rows(append)
        won = self.table.append(append, rows, self)
        if reply:
            if append.term < self.table.term and not won:
                if append.term < self.revision.term:
                    self.progress.abandon()
                else:
                    self.progress.term = None  # fenced
            else:
                self.progress.resolved(append, won=won, upper=self.table.upper, term=self.table.term)
                self.release()

    def compare(self) -> None:
        comparison = self.progress.comparison()
        if comparison is None or self.in_flight is not None or comparison.read_at < self.table.since:
            return
        staged = [u for table in ROWS.read(comparison.deltas) for u in updates_of(table)]
        if contents(staged, comparison.at) == contents(self.table.updates, comparison.read_at):
            self.progress.found_equal(self.progress.term or 0)
            self.release()
        else:
            assert comparison.at not in self.vain, "what differs stays so up to the next refresh"
            self.vain.add(comparison.at)
            self.progress.found_different(comparison)

    def fold(self, *, when_due: bool = False) -> None:
        whole = self.progress.compaction_due(1000) if when_due else self.progress.compaction_input()
        if whole is None or self.in_flight is not None or not whole.deltas or self.progress._pending is not None:
            return
        self.progress.replace_staged(whole, self._folded(whole))

    @staticmethod
    def _folded(whole: CompactionInput) -> Staged:
        summed: Counter[tuple[int, int]] = Counter()
        for table in ROWS.read(whole.deltas):
            for row, time, diff in updates_of(compacted(table, whole)):
                summed[row, time] += diff
        updates = tuple((row, time, diff) for (row, time), diff in sorted(summed.items()) if diff)
        return Staged(whole.lower, whole.staged[-1].upper, Delta(updates))  # type: ignore[arg-type]

    def check(self) -> None:
        """Nothing is kept of its hydration that is in the table."""
        self.fold(when_due=True)
        kept = [u for table in ROWS.read(s.delta for s in self.progress._staged if s.delta) for u in updates_of(table)]
        if self.progress.synced and self.in_flight is None and not self.progress.is_pending:
            assert not any(time <= self.as_of < self.progress._written for _, time, _ in kept)

    def _rows(self, append: AppendAttempt) -> list[Update]:
        if not append.syncs:
            return []
        wanted = [u for table in ROWS.read(append.deltas) for u in updates_of(moved(table, append))]
        if append.correct and append.expected_upper > 0:
            held = contents(self.table.updates, append.expected_upper - 1)
            wanted += [(row, append.first_time, -n) for row, n in held.items()]
        return wanted


def settle(replica: Replica, inputs: int) -> None:
    """Alone, and with all replies: until it has nothing more to do."""
    replica.lag = 0
    for _ in range(20):
        replica.end(reply=True)
        replica.observe()
        replica.step(inputs)
        replica.begin(inputs)
    replica.check()


def reached(replica: Replica, inputs: int) -> int:
    """The upper that the table must have then."""
    refreshes = replica.revision.refreshes
    is_over = refreshes.schedule.next(inputs) is None or (refreshes.until is not None and inputs >= refreshes.until)
    return EMPTY_SENTINEL if is_over else inputs
