"""At which time a query is answered, if at any.

since <= as_of < write frontier        default: write frontier - 1, the freshest complete time

Of several relations the latest since and the earliest write frontier count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark_operator.errors import NothingComplete, QueryRefused
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time


@dataclass(frozen=True)
class Span:
    """The times at which a relation can be read: from `since` on, before `write`."""

    name: str
    since: Frontier
    write: Frontier


def choose_time(spans: Sequence[Span], as_of: int | None) -> Time:
    """The time to read all of them at; raises QueryRefused, saying which times can be read, and NothingComplete
    where none can."""
    first, last = max(spans, key=lambda s: s.since), min(spans, key=lambda s: s.write)
    since, write = first.since, last.write
    if write <= since and not write.is_empty:
        why = "it is being computed from" if first is last else f"{first.name} can only be read from"
        raise NothingComplete(f"{last.name} has no complete time yet: {why} {_moment(since)} on")
    if as_of is None:
        as_of = (since if write.is_empty else Frontier.at(max(0, write.encode() - 1))).encode()
    if not since.less_equal(as_of):
        raise QueryRefused(f"{first.name} cannot be read at {as_of} any more: only from {_moment(since)} on")
    if write.less_equal(as_of):
        raise QueryRefused(f"{last.name} is not complete at {as_of} yet: only before {_moment(write)}")
    return Time(as_of)


def _moment(frontier: Frontier) -> str:
    """As `--as-of` takes it, and as people read it."""
    time = frontier.encode()
    try:
        date = datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):  # past the year 9999
        return str(time)
    return f"{time} ({date.replace('+00:00', 'Z')})"
