"""Compare-and-append: which of several writers wins, and how a retry finds out that its append has landed.

    the upper is still the expected one         the append cannot have landed: try it
    the upper has moved on                      exactly one append moved it off the expected upper:
                                                if its commit id is ours, we won; otherwise another writer did

The second line makes a retry safe after any number of later commits: the append that left a given upper is unique, and
the log (or this handle's memory) has its commit id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_persist.errors import CommitForgotten, Fenced, InvalidTime, ShardDeleted
from tidemark_persist.log.delta_log import DeltaLog
from tidemark_persist.log.entry import Change, DataFile
from tidemark_persist.log.state import ShardState, TableState, UpperMove
from tidemark_persist.log.transact import transact
from tidemark_persist.times import DELETED, EMPTY, Term, Time, checked_frontier, checked_term, show


@dataclass(frozen=True)
class Appended:
    """The append has landed. `upper` is the shard's upper, as far as this handle knows."""

    upper: Time
    version: int


@dataclass(frozen=True)
class UpperMismatch:
    """Another append came first; nothing was written."""

    current_upper: Time


@dataclass(frozen=True)
class Append:
    """A checked append."""

    expected_upper: Time
    new_upper: Time
    term: Term
    commit_id: str
    retry: bool  # the caller names the commit: it may have landed in an earlier call
    since: Time | None = None  # the first time whose contents the writer knows
    epoch: int | None = None  # in which the writer began; None: in any
    lost: frozenset[str] = frozenset()  # lost files, whose rows are among those of the append


def checked_append(
    expected_upper: int,
    new_upper: int,
    term: int,
    commit_id: str,
    *,
    retry: bool,
    since: int | None = None,
    epoch: int | None = None,
    lost: frozenset[str] = frozenset(),
) -> Append:
    """An `Append`, or `InvalidTime`."""
    lower = checked_frontier(expected_upper, "the expected upper")
    upper = checked_frontier(new_upper, "the new upper")
    if lower >= upper:
        raise InvalidTime(f"the new upper {show(upper)} is not beyond the expected upper {show(lower)}")
    first = None if since is None else checked_frontier(since, "the since")
    if first is not None and first >= upper:
        raise InvalidTime(f"since {show(first)} would reach the new upper {show(upper)} and leave no time to read")
    return Append(lower, upper, checked_term(term), commit_id, retry, first, epoch, lost)


def decided(log: DeltaLog, append: Append, *, tried: bool) -> Appended | UpperMismatch | None:
    """The outcome of an append that has already ended; None if it is still to be made. Raises Fenced, ShardDeleted,
    ForeignCommit."""
    log.check_contents()
    log.continuity.check(append.epoch)
    now = log.state.frontiers
    if tried and now.upper > append.expected_upper and _is_ours(log, append):
        return Appended(now.upper, now.version)
    check_term(log, append.term, now)
    return None if now.upper == append.expected_upper else UpperMismatch(now.upper)


def compare_and_append(log: DeltaLog, append: Append, files: Sequence[DataFile]) -> Appended | UpperMismatch:
    """Lands the append, or returns the upper that it should have expected."""
    tried = append.retry

    def decide(state: TableState) -> Change | Appended | UpperMismatch:
        nonlocal tried
        ended = decided(log, append, tried=tried)
        if ended is not None:
            return ended
        tried = True
        now = state.frontiers
        if not all(map(state.holds, append.lost)):  # a compaction that had read them has put their rows back
            return UpperMismatch(now.upper)
        term = append.term if append.term > now.term else None
        since = append.since if append.since is not None and append.since > now.since else None
        foreign = log.foreign if log.foreign > now.foreign else None
        removes = tuple(file for file in state.files() if file.path in append.lost) if append.lost else ()
        return Change(append.commit_id, append.new_upper, since, term, tuple(files), removes, foreign)

    outcome: Change | Appended | UpperMismatch = transact(log, decide)
    if isinstance(outcome, Change):
        return Appended(log.state.frontiers.upper, log.version)
    return outcome


def fence(log: DeltaLog, term: int, commit_id: str) -> None:
    """Raises the writer's term without an append: from now on older terms are `Fenced`."""
    wanted = checked_term(term)

    def decide(state: TableState) -> Change | None:
        check_term(log, wanted, state.frontiers)
        return Change(commit_id, term=wanted) if wanted > state.frontiers.term else None

    transact(log, decide)


def downgrade_since(log: DeltaLog, since: int, commit_id: str) -> Time:
    """Moves the since to `since`; an older time changes nothing. Returns the present since. Raises InvalidTime."""
    wanted = checked_frontier(since, "the since")

    def decide(state: TableState) -> Change | None:
        now = state.frontiers
        _refuse_deleted(log, now)
        if wanted <= now.since:
            return None
        if wanted >= now.upper > 0 and wanted != EMPTY:
            raise InvalidTime(
                f"shard {log.storage.location}: since {show(wanted)} would reach the upper {show(now.upper)} "
                "and leave no time to read; downgrade below the upper (or to the empty frontier)"
            )
        return Change(commit_id, since=wanted)

    transact(log, decide)
    return log.state.frontiers.since


def check_term(log: DeltaLog, term: Term, now: ShardState) -> None:
    """Raises Fenced where a newer term has written."""
    _refuse_deleted(log, now)
    if term < now.term:
        raise Fenced(f"shard {log.storage.location}: a writer of term {now.term} took over from term {term}; stop")


def _refuse_deleted(log: DeltaLog, now: ShardState) -> None:
    if now.term == DELETED:
        raise ShardDeleted(f"shard {log.storage.location} is being deleted")


def _is_ours(log: DeltaLog, append: Append) -> bool:
    move = log.state.move_from(append.expected_upper) or _search(log, append)
    return move.commit_id == append.commit_id


def _search(log: DeltaLog, append: Append) -> UpperMove:
    """Walks the log back to the append that left the expected upper. Raises CommitForgotten."""
    move = UpperMove(append.expected_upper, log.state.frontiers.upper, None)
    for version in range(log.version, -1, -1):
        entry = log.read_entry(version)
        if entry is None:
            break
        if entry.upper is not None and entry.upper <= append.expected_upper:
            return move
        if entry.upper is not None:
            move = UpperMove(append.expected_upper, entry.upper, entry.commit_id)
    raise CommitForgotten(
        f"shard {log.storage.location}: the log does not have the commit any more that left upper "
        f"{show(append.expected_upper)}; it is {show(log.state.frontiers.upper)} now: compare the contents there"
    )
