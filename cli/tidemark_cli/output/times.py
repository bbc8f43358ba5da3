"""Times and durations, as options take them and as output shows them.

A time is milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tidemark_protocol.times import EMPTY

_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds, from hours, minutes and seconds as kubectl writes them: `1h30m`.

    Raises:
        ValueError: the text is no such duration, or zero.
    """
    found = _DURATION.fullmatch(text)
    seconds = sum(size * int(n or 0) for size, n in zip((3600, 60, 1), found.groups(), strict=True)) if found else 0
    if not seconds:
        raise ValueError(f"{text!r} is not a duration: write 30s, 5m or 1h30m")
    return float(seconds)


def show(time: int) -> str:
    """The time in UTC, to the millisecond; `finished` for the empty frontier."""
    if time == EMPTY:
        return "finished"
    try:
        return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError):
        return str(time)


def show_lag(now: int, frontier: int | None) -> str:
    """The frontier's lag behind `now`, in the form of kubectl's ages."""
    if frontier is None:
        return "<unknown>"
    if frontier == EMPTY:
        return "finished"
    seconds = max(0, now - frontier) / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
