"""Times as options of the command line and parameters of HTTP take them.

A time is milliseconds since 1970-01-01 UTC. `EMPTY`, the empty frontier, is the time of what has finished.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tidemark_protocol.frontier import EMPTY_SENTINEL

EMPTY = EMPTY_SENTINEL


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
