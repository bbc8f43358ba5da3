"""Dates and times as texts of PostgreSQL: the forms that are read here, and the time that each of them is.

    2024-01-31                          at 00:00:00
    2024-01-31 10:00, 2024-01-31T10:00:00.25
    2024-01-31 10:00:00Z, ...+02, ...+0530, ...-03:30

A timestamp ignores the offset of its text, as in PostgreSQL. A timestamptz without an offset is a time of the session's
zone: one that the clock leaves out counts by the offset before, one that the clock shows twice is the second. Other
forms of PostgreSQL (infinity, BC, 24:00, names of zones and of months, more than six digits) are none here.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:[.](\d{1,6}))?)?(Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
_FORM = "yyyy-mm-dd hh:mm:ss, with an offset such as +02:00 where it has one"
_MAX_OFFSET_HOURS = 14


class NoTime(Exception):
    """The text is no date or time of the forms that are read here."""


def is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None


def date_of(text: str) -> str:
    """The date in a text, whose time PostgreSQL leaves out. Raises NoTime."""
    return _read(text)[0].date().isoformat()


def timestamp_of(text: str) -> str:
    """The text of a timestamp in Spark's form. Raises NoTime."""
    return _spoken(_read(text)[0])


def timestamptz_of(text: str, zone: str) -> str:
    """The text of a timestamptz in UTC, in Spark's form. `zone`: of the session. Raises NoTime."""
    local, offset = _read(text)
    try:
        if offset is None:
            found = ZoneInfo(zone)
            # the lesser offset is that before a gap, and that after a time that is there twice
            before, after = (local.replace(tzinfo=found, fold=fold).utcoffset() for fold in (0, 1))
            assert before is not None
            assert after is not None
            offset = min(before, after)
        return _spoken(local.replace(tzinfo=timezone(offset)).astimezone(UTC))
    except OverflowError:
        raise NoTime("a time outside the years 1 to 9999") from None


def _read(text: str) -> tuple[datetime, timedelta | None]:
    """The time as it is written, and its offset from UTC."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise NoTime(f"a time that is not written as {_FORM}")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    try:
        date(year, month, day)
        micros = int((found[7] or "").ljust(6, "0"))
        return datetime(year, month, day, hour, minute, second, micros), _offset(found[8])
    except ValueError:
        raise NoTime("a time that the calendar or the clock does not have") from None


def _offset(text: str | None) -> timedelta | None:
    if text is None:
        return None
    if text == "Z":
        return timedelta()
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    if hours > _MAX_OFFSET_HOURS or minutes > 59:
        raise ValueError(text)
    return timedelta(hours=hours, minutes=minutes) * (-1 if text[0] == "-" else 1)


def _spoken(at: datetime) -> str:
    """The text as Spark writes it: without zeros at the end of a fraction."""
    text = at.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text
