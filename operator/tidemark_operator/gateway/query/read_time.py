"""The time (as_of) at which a query is answered. Times are milliseconds since 1970.

    since <= as_of < write frontier        default: write frontier - 1, the freshest complete time
                                           strict: the same, once everything ingested when the query was asked is below

Among several relations the latest since and the earliest write frontier count. A finished relation is read at the time
of asking, up to which its temporal filters have produced its rows; so is a query that reads no relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemark_operator.errors import NoCompleteTime, TimeNotReadable
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.resources.conditions.frontier import moment
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import MAX_TIME, Time


@dataclass(frozen=True)
class ReadableTimes:
    """The times at which a relation can be read: at or after `since`, before `write`."""

    name: str
    since: Frontier
    write: Frontier


@dataclass(frozen=True)
class TimeRequest:
    """The requested time: `as_of`, or the freshest one at or after `earliest`.

    `patient`: a time before `now` that is not complete yet raises NoCompleteTime, so that it is waited for. `now`:
    when the query was asked.
    """

    as_of: int | None = None
    earliest: Time | None = None
    patient: bool = False
    now: int = field(default_factory=now_ms)


def choose_time(spans: Sequence[ReadableTimes], when: TimeRequest) -> Time:
    """The time to read all relations at.

    Raises:
        TimeNotReadable: `as_of` cannot be read; the message gives the times that can.
        NoCompleteTime: no time can be read yet.
    """
    as_of = when.as_of
    if (
        as_of is not None and not 0 <= as_of < MAX_TIME
    ):  # a dataflow for one time ends at the next one, which must be a time
        raise TimeNotReadable(
            f"--as-of {as_of} is not a time: times are milliseconds since 1970, from 0 on and below {MAX_TIME}"
        )
    if not spans:
        return Time(when.now if as_of is None else as_of)
    first, last = max(spans, key=lambda s: s.since), min(spans, key=lambda s: s.write)
    since, write = first.since, last.write
    if write <= since and not write.is_empty:
        why = "it is being computed from" if first is last else f"{first.name} can only be read from"
        raise NoCompleteTime(f"{last.name} has no complete time yet: {why} {moment(since)} on")
    if when.earliest is not None and write.less_equal(when.earliest):
        raise NoCompleteTime(
            f"{last.name} is complete before {moment(write)}, and data up to {moment(Frontier.at(when.earliest))} "
            "had been "
            f"ingested when the query was asked: `kubectl tidemark why {last.name}` says what holds it back"
        )
    if as_of is None:
        as_of = max(since.encode(), when.now) if write.is_empty else max(0, write.encode() - 1)
    if not since.less_equal(as_of):
        raise TimeNotReadable(f"{first.name} cannot be read at {as_of} any more: only from {_readable(since, write)}")
    if write.less_equal(as_of):
        refusal = NoCompleteTime if when.patient and as_of <= when.now else TimeNotReadable
        raise refusal(f"{last.name} is not complete at {as_of} yet: only from {_readable(since, write)}")
    return Time(as_of)


def _readable(since: Frontier, write: Frontier) -> str:
    return f"{moment(since)} on" + ("" if write.is_empty else f", and before {moment(write)}")
