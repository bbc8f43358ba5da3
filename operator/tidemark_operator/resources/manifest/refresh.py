"""When a view is brought up to date, as manifests write it.

    refresh: {every: 1h, alignedTo: "2026-01-01T00:00:00Z", at: ["2026-12-31T23:00:00Z"]}

`every` counts from `alignedTo` in both directions, from 1970 on where that is absent.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol.ids import MIN_TIME, Time
from tidemark_protocol.plan.refresh import MAX_EVERY_MS, MAX_TIMES, MIN_EVERY_MS, RefreshSchedule

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.]\d{1,3})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_refresh(refresh: Fields) -> RefreshSchedule:
    """The schedule; raises ResourceError."""
    if not refresh.has("every") and not refresh.texts("at"):
        raise InvalidValue(refresh.path, "every, at, or both must be given")
    if refresh.has("alignedTo") and not refresh.has("every"):
        raise InvalidValue(refresh.at("alignedTo"), "goes with every")
    at = sorted({_time(f"{refresh.at('at')}[{i}]", text) for i, text in enumerate(refresh.texts("at"))})
    if len(at) > MAX_TIMES:
        raise InvalidValue(refresh.at("at"), f"must be at most {MAX_TIMES} times, not {len(at)}")
    every = duration_ms(refresh, "every", MIN_EVERY_MS, MAX_EVERY_MS) if refresh.has("every") else None
    aligned = _time(refresh.at("alignedTo"), refresh.text("alignedTo")) if refresh.has("alignedTo") else MIN_TIME
    return RefreshSchedule(every, aligned, tuple(at))


def _time(path: str, text: str) -> Time:
    """Milliseconds since 1970 of a date and time of RFC 3339, exactly."""
    try:
        ms = (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1) if _TIME.fullmatch(text) else -1
    except ValueError:
        ms = -1
    if ms < 0:
        raise InvalidValue(path, f"must be a time from 1970 on such as 2026-01-01T00:00:00Z, not {text!r:.40}")
    return Time(ms)
