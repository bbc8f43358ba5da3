"""The times at which a view is brought up to date, as manifests write them.

    refresh: {every: 1h, alignedTo: "2026-01-01T00:00:00Z", at: ["2026-12-31T23:00:00Z"]}

`every` counts from `alignedTo` in both directions, from 1970 on where that is absent.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum

from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol.ids import MIN_TIME, Time
from tidemark_protocol.plan.refresh import AUTO, FULL, INCREMENTAL, RefreshSchedule

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RefreshPolicy(Enum):
    """The way in which a view is computed: from the state that a replica keeps; anew at each refresh, without state;
    or, from time to time, anew where that costs less."""

    INCREMENTAL = INCREMENTAL
    FULL = FULL
    AUTO = AUTO


def parse_refresh(refresh: Fields) -> RefreshSchedule:
    every = duration_ms(refresh, "every") if refresh.has("every") else None
    aligned = _time(refresh.text("alignedTo")) if refresh.has("alignedTo") else MIN_TIME
    return RefreshSchedule(every, aligned, tuple(sorted({_time(text) for text in refresh.texts("at")})))


def _time(text: str) -> Time:
    """Milliseconds since 1970 of a date and time of RFC 3339, exactly."""
    return Time((datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1))
