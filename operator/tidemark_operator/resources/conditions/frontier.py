"""A frontier as status holds it.

    None                    absent                                           unknown
    Frontier.at(1732147200000)  {time: 1732147200000, at: "2024-11-21T..."}  times before it are complete
    Frontier.empty()        {finished: true}                                 nothing will ever change again

`at` is for people and for kubectl's LAG column, which shows `now - at`: a time beyond the clock (a dataflow may be
complete for future times) is shown as now, because kubectl prints `<invalid>` for a negative age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol import frontier
from tidemark_protocol.frontier import Frontier

Reported = Frontier | None
"""A frontier; None: unknown."""


def frontier_status(reported: Reported, now_ms: int) -> dict[str, Any] | None:
    """The form above. `now_ms`: milliseconds since 1970. None stays None: the builders of status omit such fields."""
    if reported is None:
        return None
    if reported.time is None:
        return {"finished": True}
    return {"time": reported.time, "at": timestamp(min(reported.time, now_ms))}


def parse_frontier(shape: Mapping[str, Any] | None) -> Reported:
    """The frontier in a status: the inverse of `frontier_status`, except that `at` is clamped. Raises ResourceError."""
    if not shape:
        return None
    fields = Fields(shape, "frontier")
    return Frontier.empty() if fields.flag("finished", False) else Frontier.at(fields.integer("time"))


def meet(reported: Iterable[Reported]) -> Reported:
    """The meet of the frontiers; None (unknown) if one of them is unknown, or if there is none."""
    known = list(reported)
    if not known or any(one is None for one in known):
        return None
    return frontier.meet(one for one in known if one is not None)


def moment(frontier: Frontier) -> str:
    """A frontier's time in milliseconds, as `--as-of` takes it, followed by the date."""
    time = frontier.encode()
    shown = date(time)
    return shown if shown == str(time) else f"{time} ({shown})"


def date(ms: int) -> str:
    """Milliseconds since 1970 as an ISO 8601 date in UTC; a time past the year 9999 stays a number."""
    try:
        found = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):  # past the year 9999
        return str(ms)
    return found.replace("+00:00", "Z")


def timestamp(ms: int) -> str:
    """Milliseconds since 1970 as the API server writes dates: whole seconds, UTC."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
