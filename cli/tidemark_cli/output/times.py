"""Times and durations, as options take them and as output shows them.

A time is milliseconds since 1970-01-01 UTC. `EMPTY`, the empty frontier, is the time of what has finished.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

EMPTY = 2**63 - 1
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", re.ASCII)


def parse(text: str) -> int:
    """Milliseconds, from milliseconds or from an ISO 8601 date and time, in UTC unless it has an offset.

    Raises:
        ValueError: the text is neither, or the time is before 1970 or after the last one.
    """
    time = int(text) if text.isascii() and text.isdigit() else _milliseconds(text)
    if not 0 <= time < EMPTY:
        raise ValueError(f"{text!r} is out of range: times are from 1970 on, in milliseconds below {EMPTY}")
    return time


def _milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither milliseconds since 1970 nor a time such as 2026-01-31T12:00:00"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


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
    """How far the frontier is behind `now`, in the form of kubectl's ages."""
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
