"""Times as people write and read them.

Inside, a time is milliseconds since 1970; `--as-of` takes that, or a date and time in ISO 8601 (UTC unless it says).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tidemark_cli.errors import CliError

EMPTY = 2**63 - 1


def parse(text: str, option: str = "--as-of") -> int:
    """The time in milliseconds; raises CliError."""
    time = int(text) if text.isascii() and text.isdigit() else _milliseconds(text, option)
    if not 0 <= time < EMPTY:
        raise CliError(f"{option} {text}: times are from 1970 on, in milliseconds below {EMPTY}")
    return time


def _milliseconds(text: str, option: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(
            f"{option} {text!r} is neither milliseconds since 1970 nor a time as 2026-01-31T12:00:00"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def seconds(text: str | None, option: str = "--timeout") -> float | None:
    """How long that is, written as kubectl writes it; None for None. Raises CliError."""
    if text is None:
        return None
    found = re.fullmatch(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", text, re.ASCII)
    total = (
        sum(size * int(count or 0) for size, count in zip((3600, 60, 1), found.groups(), strict=True)) if found else 0
    )
    if not total:
        raise CliError(f"{option} {text!r} is no time to wait: write 30s, 5m or 1h30m")
    return float(total)


def show(time: int) -> str:
    """The time in UTC, to the millisecond; `finished` for the empty frontier."""
    if time == EMPTY:
        return "finished"
    try:
        return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError):
        return str(time)


def show_lag(now: int, frontier: int | None) -> str:
    """How far the frontier is behind, as kubectl shows ages."""
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
