"""At which time a query is answered, if at any.

since <= as_of < write frontier        default: write frontier - 1, the freshest complete time
                                       strict: the same, once it is at or beyond all that was ingested when asked

Of several relations the latest since and the earliest write frontier count. What is finished is read at the time of
asking, for which its temporal filters have made the contents too; so is what reads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemark_operator.errors import NothingComplete, TimeNotReadable
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.resources.conditions.frontier import moment
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import MAX_TIME, Time


@dataclass(frozen=True)
class Span:
    """The times at which a relation can be read: from `since` on, before `write`."""

    name: str
    since: Frontier
    write: Frontier


@dataclass(frozen=True)
class When:
    """What the asker wants: that time, or the freshest that is not before `least`. `patient`: a time that has passed
    may become complete yet. `now`: when that was."""

    as_of: int | None = None
    least: Time | None = None
    patient: bool = False
    now: int = field(default_factory=now_ms)


def choose_time(spans: Sequence[Span], when: When) -> Time:
    """The time to read all of them at; raises TimeNotReadable, saying which times can be read, and NothingComplete
    where none can."""
    as_of = when.as_of
    if as_of is not None and not 0 <= as_of < MAX_TIME:  # what is made for one time ends at the next, which is one too
        raise TimeNotReadable(f"nothing can be read at {as_of}: times are milliseconds since 1970, below {MAX_TIME}")
    if not spans:
        return Time(when.now if as_of is None else as_of)
    first, last = max(spans, key=lambda s: s.since), min(spans, key=lambda s: s.write)
    since, write = first.since, last.write
    if write <= since and not write.is_empty:
        why = "it is being computed from" if first is last else f"{first.name} can only be read from"
        raise NothingComplete(f"{last.name} has no complete time yet: {why} {moment(since)} on")
    if when.least is not None and write.less_equal(when.least):
        raise NothingComplete(
            f"{last.name} is complete before {moment(write)}, not yet up to {moment(Frontier.at(when.least))}, which "
            f"had been ingested when the query was asked: `kubectl tidemark why {last.name}` says what holds it back"
        )
    if as_of is None:
        as_of = max(since.encode(), when.now) if write.is_empty else max(0, write.encode() - 1)
    if not since.less_equal(as_of):
        raise TimeNotReadable(f"{first.name} cannot be read at {as_of} any more: only from {_readable(since, write)}")
    if write.less_equal(as_of):
        refusal = NothingComplete if when.patient and as_of <= when.now else TimeNotReadable
        raise refusal(f"{last.name} is not complete at {as_of} yet: only from {_readable(since, write)}")
    return Time(as_of)


def _readable(since: Frontier, write: Frontier) -> str:
    return f"{moment(since)} on" + ("" if write.is_empty else f", and before {moment(write)}")
