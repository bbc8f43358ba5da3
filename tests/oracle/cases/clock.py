"""Cases that read the clock: at each time, the answer of a batch whose now() is that time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from tests.oracle.check import Case
from tests.oracle.histories import Table
from tests.oracle.tables import INTS, U

START = datetime(1970, 1, 1, tzinfo=UTC)
HOURS = 6 * 3_600_000


def moments(unit: timedelta) -> list[Any]:
    """Before, within and after the history, on a tick, just before and just after it, and never."""
    near = timedelta(microseconds=1)
    return [START - unit, START + 9 * unit, START + 9 * unit + near, START + 20 * unit - near, START + 99 * unit, None]


E = Table((("k", "bigint"), ("ts", "timestamp"), ("d", "date")), (INTS, moments(timedelta(milliseconds=1)), [None]))
DAYS = Table(
    E.columns, (INTS, moments(timedelta(hours=6)), [date(1969, 12, 31), date(1970, 1, 4), date(1970, 1, 7), None])
)
AGO = Table(E.columns, (INTS, [datetime(1969, 12, 1, 0, 0, 0, n * 1000, UTC) for n in (0, 9, 20)] + [None], [None]))

QUERIES = (
    Case("clock: seen from then on", "SELECT k FROM e WHERE ts <= now()", {"e": E}, tick=1),
    Case("clock: seen after then", "SELECT k FROM e WHERE ts < now()", {"e": E}, tick=1),
    Case("clock: seen until then", "SELECT k, ts FROM e WHERE now() < ts", {"e": E}, tick=1),
    Case("clock: seen up to then", "SELECT k FROM e WHERE ts >= now()", {"e": E}, tick=1),
    Case(
        "clock: a window that moves",
        "SELECT k, count(*) AS n FROM e WHERE ts <= now() AND ts > now() - INTERVAL '0.005' SECOND AND k <> 2 "
        "GROUP BY k",
        {"e": E},
        tick=1,
    ),
    Case(
        "clock: months later",
        "SELECT k, ts FROM e WHERE ts + INTERVAL 1 MONTH >= now() "
        "AND ts + INTERVAL 1 MONTH <= now() + INTERVAL '0.009' SECOND",
        {"e": AGO},
        tick=1,
    ),
    Case(
        "clock: in a join",
        "SELECT e.k, u.d FROM e JOIN u ON e.k = u.a AND e.ts + INTERVAL '0.003' SECOND < now() AND u.d IS NOT NULL",
        {"e": E, "u": U},
        tick=1,
    ),
    Case(
        "clock: above an aggregate",
        "SELECT k, n FROM (SELECT k, ts, count(*) AS n FROM e GROUP BY k, ts) WHERE ts <= now() AND n > 1",
        {"e": E},
        tick=1,
    ),
    Case(
        "clock: in a recursion",
        "WITH RECURSIVE r(k, ts, d) AS (SELECT k, ts, 1 FROM e UNION ALL "
        "SELECT k + 1, ts + INTERVAL '0.004' SECOND, d + 1 FROM r WHERE ts <= now() AND d < 4) SELECT * FROM r",
        {"e": E},
        tick=1,
    ),
    Case("clock: days", "SELECT k FROM e WHERE d < current_date()", {"e": DAYS}, tick=HOURS),
    Case(
        "clock: a window of days",
        "SELECT k FROM e WHERE d >= current_date() - INTERVAL 2 DAYS AND d <= date_add(current_date(), 1)",
        {"e": DAYS},
        tick=HOURS,
    ),
    Case("clock: moments of today", "SELECT k FROM e WHERE ts >= current_date()", {"e": DAYS}, tick=HOURS),
    Case("clock: moments before today", "SELECT k FROM e WHERE ts < current_date()", {"e": DAYS}, tick=HOURS),
    Case("clock: moments up to midnight", "SELECT k FROM e WHERE ts <= current_date()", {"e": DAYS}, tick=HOURS),
    Case("clock: moments after midnight", "SELECT k FROM e WHERE current_date() < ts", {"e": DAYS}, tick=HOURS),
)
