"""The time at which a dataflow begins: that of its snapshot.

    inputs' since ─┬─ lower bound: the inputs cannot be read earlier
    running since ─┘  a replica that has the dataflow continues from here; earlier, it would have to begin again
    sink's upper-1    the view's shard is complete before that: nothing to compute again
    inputs' upper-1   otherwise the latest complete time, so that hydration is one snapshot
    until-1           an upper bound: there is nothing from `until` on

A bound below the lower bound gives way to it, and the dataflow waits for its inputs. Two bounds do not give way, and
the dataflow is refused: its end, and the upper of a continual task's table, as a task must not leave out a time.

A sealed dataflow (all its exports are finished tables) is computed by no replica (replicas/excluded_dataflows.py), so
its as_of does not matter, whatever its inputs have forgotten since.
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
    """A shard or an index that the dataflow imports; `name`: the name that users know."""

    name: str
    frontiers: FrontierPair | None
    error: str | None = None


@dataclass(frozen=True)
class AsOfRequest:
    """`sinks`: uppers of the views' shards that hold data. `stored`: the as_of of a stored revision. `running`:
    sinces of the exports on replicas that have the dataflow. `requested`: spec.asOf. `exact`: no time between the
    sinks' uppers and the as_of may be left out. `until`: spec.until. `sealed`: all its exports are finished tables;
    `unsure`: they may be, but no replica has reported all of them."""

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
    """Choose the as_of. Raises: Waiting while an input is unknown or empty; Rejected where the requested time is no
    longer readable, a task would leave out a time, or the inputs can be read only after the end."""
    if request.sealed:
        return _sealed(request)
    as_of = _before_the_end(request, _select(request))
    reached = meet(request.sinks)
    if request.exact and reached.time is not None and as_of >= reached.time:
        raise Rejected(
            "HistoryGone",
            f"its table is complete up to {reached.time}, but its inputs can be read from {as_of} on: the changes "
            "between are gone, and a continual task must not leave them out. Create a Dataflow without adopt: it "
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
    """Keep the as_of before `until`: at or after it, everything would count as complete and nothing be computed."""
    until, lower = request.until, _lower_if_known(request.inputs)
    if until is None or as_of < until:
        return as_of
    if lower.less_equal(until - 1):
        return Time(until - 1)
    if request.unsure:
        raise Waiting("WaitingForInput", "waiting for a replica to report how far its own tables are")
    raise Rejected(
        "UntilNotReadable",
        f"spec.until is {until}, but the inputs can be read from {lower.time} on, so nothing before the end "
        "can be computed: set a later time, or none",
    )


def _sealed(request: AsOfRequest) -> Time:
    """The as_of of a sealed dataflow. If a replica finds it unfinished after all, it should begin where the inputs
    can be read."""
    stored, lower = request.stored or MIN_TIME, _time(_lower_if_known(request.inputs))
    return max(stored, lower) if request.until is None or lower < request.until else stored


def sinces(inputs: Iterable[Input], first: bool) -> list[Frontier]:
    """The sinces of the inputs. `first`: the dataflow was never stored, so its inputs must hold data. Raises:
    Waiting while one is unknown."""
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
    """The join of the known sinces: an unknown input does not stop a dataflow that is already running."""
    return join(i.frontiers.since for i in inputs if i.frontiers)


def _requested(requested: Time, lower: Frontier) -> Time:
    if lower.less_equal(requested):
        return requested
    raise Rejected(
        "AsOfNotReadable",
        f"spec.asOf is {requested}, but the inputs can be read from {lower.time} on: set a later time, or none",
    )


def _time(frontier: Frontier) -> Time:
    return MIN_TIME if frontier.time is None else frontier.time
