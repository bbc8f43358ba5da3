"""Where a dataflow begins: the time of its snapshot.

    inputs' since ─┬─ lower bound: earlier, the inputs cannot be read
    running since ─┘  a replica that has the dataflow goes on with it from here; earlier, it would start anew
    sink's upper-1    the view's shard is complete before that: nothing to compute again
    inputs' upper-1   else as late as is complete now, so that hydration is one snapshot
    until-1           never later: there is nothing from `until` on

A bound that would lie under the lower one gives way to it; then the dataflow waits for its inputs. Two do not, and it
is refused: the end; and a continual task that goes on must not leave out a time, so where its inputs have forgotten
what it has not done yet, it cannot.

What is sealed, its tables being finished and all that it exports, is computed nowhere
(replicas/excluded_dataflows.py): whatever its inputs have forgotten since, it is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_operator.controller.frontiers.read_policy import before
from tidemark_operator.controller.frontiers.shards import FrontierPair
from tidemark_operator.errors import Rejected, Waiting
from tidemark_protocol.frontier import Frontier, join, meet
from tidemark_protocol.ids import MIN_TIME, Time


@dataclass(frozen=True)
class Input:
    """A shard or an index that the dataflow imports; `name` is what people call it."""

    name: str
    frontiers: FrontierPair | None
    error: str | None = None


@dataclass(frozen=True)
class AsOfRequest:
    """`sinks`: uppers of the views' shards that hold something already. `stored`: what a stored revision says.
    `running`: since of each export on a replica that has it. `requested`: spec.asOf. `exact`: nothing between what the
    sinks hold and the as_of may be left out. `until`: spec.until. `sealed`: all that it exports is finished; `unsure`:
    it may be, but not all is known that says so."""

    inputs: tuple[Input, ...]
    sinks: tuple[Frontier, ...] = ()
    stored: Time | None = None
    running: tuple[Frontier, ...] = ()
    requested: Time | None = None
    exact: bool = False
    until: Time | None = None
    sealed: bool = False
    unsure: bool = False


def select_as_of(request: AsOfRequest) -> Time:
    """The as_of; raises Waiting while an input is unknown or empty, Rejected for a requested time that is gone, or one
    that must not be left out, or where all that can be read is after the end."""
    if request.sealed:
        return _sealed(request)
    as_of = _before_the_end(request, _select(request))
    reached = meet(request.sinks)
    if request.exact and reached.time is not None and as_of >= reached.time:
        raise Rejected(
            "HistoryGone",
            f"its table is complete up to {reached.time}, but its inputs can be read from {as_of} on: what changed "
            "between is gone, and no edit of it goes on without that. A Dataflow that is created anew, without adopt, "
            "begins with a table of its own",
        )
    return as_of


def _select(request: AsOfRequest) -> Time:
    if request.running:
        lower = _lower_if_known(request.inputs)
        return _time(max(lower, join(request.running)))
    lower = join(sinces(request.inputs, first=request.stored is None))
    if request.stored is None and request.requested is not None:
        return _requested(request.requested, lower)
    reached = meet(request.sinks)
    if not reached.is_empty:
        return _time(max(lower, before(reached)))
    if request.stored is not None:
        return _time(max(lower, Frontier.at(request.stored)))
    complete = before(meet(i.frontiers.upper for i in request.inputs if i.frontiers))
    return _time(lower if complete.is_empty else max(lower, complete))


def _before_the_end(request: AsOfRequest, as_of: Time) -> Time:
    """Not from `until` on, where all would be said to be complete that never was computed."""
    until, lower = request.until, _lower_if_known(request.inputs)
    if until is None or as_of < until:
        return as_of
    if lower.less_equal(until - 1):
        return Time(until - 1)
    if request.unsure:
        raise Waiting("WaitingForInput", "waiting for a replica to report how far its own tables are")
    raise Rejected(
        "UntilNotReadable",
        f"spec.until is {until}, but the inputs can be read from {lower.time} on, and so nothing before it: give a "
        "later time, or none",
    )


def _sealed(request: AsOfRequest) -> Time:
    """Nobody begins there, unless a replica finds that it is not finished: then best where the inputs can be read."""
    stored, lower = request.stored or MIN_TIME, _time(_lower_if_known(request.inputs))
    return max(stored, lower) if request.until is None or lower < request.until else stored


def sinces(inputs: Iterable[Input], first: bool) -> list[Frontier]:
    """The inputs' sinces; raises Waiting while they are not known. A dataflow that starts for the first time also
    waits for its inputs' first data."""
    found = []
    for i in inputs:
        if i.frontiers is None:
            detail = f": {i.error}" if i.error else ""
            raise Waiting("WaitingForInput", f"waiting for a replica to report how far {i.name} is{detail}")
        if first and i.frontiers.upper == Frontier.minimum():
            raise Waiting("WaitingForInput", f"waiting for the first data of {i.name}")
        found.append(i.frontiers.since)
    return found


def _lower_if_known(inputs: Iterable[Input]) -> Frontier:
    """An unreadable input does not stop a dataflow that is already running."""
    return join(i.frontiers.since for i in inputs if i.frontiers)


def _requested(requested: Time, lower: Frontier) -> Time:
    if lower.less_equal(requested):
        return requested
    raise Rejected(
        "AsOfNotReadable",
        f"spec.asOf is {requested}, but the inputs can be read from {lower.time} on: give a later time, or none",
    )


def _time(frontier: Frontier) -> Time:
    return MIN_TIME if frontier.time is None else frontier.time
