"""A frontier's shape in status.

    None                    absent                                           unknown
    Frontier.at(1732147200000)  {time: 1732147200000, at: "2024-11-21T..."}  times before it are complete
    Frontier.empty()        {finished: true}                                 nothing will ever change again

`at` is for people and for kubectl's LAG column, which shows `now - at`: a time beyond the clock (a dataflow may be
complete for times to come) is shown as now, since kubectl prints `<invalid>` for a negative age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol import frontier
from tidemark_protocol.frontier import Frontier

Reported = Frontier | None
"""A frontier as far as it is known."""


def frontier_status(reported: Reported, now_ms: int) -> dict[str, Any] | None:
    """The shape above; None stays None, and the builders of status leave such fields out."""
    if reported is None:
        return None
    if reported.time is None:
        return {"finished": True}
    return {"time": reported.time, "at": timestamp(min(reported.time, now_ms))}


def parse_frontier(shape: Mapping[str, Any] | None) -> Reported:
    """What a status says. The inverse of `frontier_status`, up to the clamped `at`."""
    if not shape:
        return None
    fields = Fields(shape, "frontier")
    return Frontier.empty() if fields.flag("finished", False) else Frontier.at(fields.integer("time"))


def meet(reported: Iterable[Reported]) -> Reported:
    """How far all of them are. Unknown if one of them is, or if there is none."""
    known = list(reported)
    if not known or any(one is None for one in known):
        return None
    return frontier.meet(one for one in known if one is not None)


def moment(frontier: Frontier) -> str:
    """A time of a frontier as options such as `--as-of` take it, and as people read it."""
    time = frontier.encode()
    shown = date(time)
    return shown if shown == str(time) else f"{time} ({shown})"


def date(ms: int) -> str:
    """A time as people read it: UTC, to the millisecond."""
    try:
        found = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):  # past the year 9999
        return str(ms)
    return found.replace("+00:00", "Z")


def timestamp(ms: int) -> str:
    """A time as the API server writes dates: whole seconds, UTC."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
