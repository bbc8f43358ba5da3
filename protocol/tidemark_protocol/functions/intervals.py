"""Functions of intervals, which exist inside expressions alone: differences of times, multiples, fields.

timestamp - timestamp     interval day to second          ts + x * INTERVAL 1 DAY
extract(HOUR FROM i)      tinyint                         make_dt_interval(1, 2, 3, 4.5)
CAST(i AS INTERVAL DAY)   interval_truncated(i, 'DAY')    whole days, as Spark's narrower types hold them
"""

from __future__ import annotations

from tidemark_protocol.casts import ARITHMETIC_OVERFLOW
from tidemark_protocol.functions.call_errors import always
from tidemark_protocol.functions.call_types import fixed, types_of
from tidemark_protocol.functions.entry import Function
from tidemark_protocol.plan.expr import Literal, ScalarExpr
from tidemark_protocol.types import DATE, INT, INTERVAL_TYPES, STRING, SqlType

DAYS = SqlType("interval day to second")
MONTHS = SqlType("interval year to month")
_TINYINT = SqlType("tinyint")
_SECONDS = SqlType("decimal", 8, 6)
# By Spark's class: the function, the field, the type of the interval, the type of the result.
PARTS = {
    "ExtractANSIIntervalDays": ("interval_days", "DAY", DAYS, INT),
    "ExtractANSIIntervalHours": ("interval_hours", "HOUR", DAYS, _TINYINT),
    "ExtractANSIIntervalMinutes": ("interval_minutes", "MINUTE", DAYS, _TINYINT),
    "ExtractANSIIntervalSeconds": ("interval_seconds", "SECOND", DAYS, _SECONDS),
    "ExtractANSIIntervalYears": ("interval_years", "YEAR", MONTHS, INT),
    "ExtractANSIIntervalMonths": ("interval_months", "MONTH", MONTHS, _TINYINT),
}
FIELDS = {name: field for name, field, _, _ in PARTS.values()}
# The fields at which Spark's interval types may end, in microseconds or in months.
WHOLE = {
    DAYS: {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000},
    MONTHS: {"YEAR": 12},
}


def _timestamps_between(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    left, right = types_of(arguments)
    return left == right and left.name in ("timestamp", "timestamp_ntz") and result == DAYS


def _interval_times(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    of, by = types_of(arguments)
    return of == result and of.name in INTERVAL_TYPES and by.is_numeric


def _interval_truncated(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    of, unit = arguments
    named = isinstance(unit, Literal) and unit.type == STRING and unit.value in WHOLE.get(result, {})
    return named and of.type == result


INTERVALS = (
    Function("timestamps_between", 2, 2, _timestamps_between, always(ARITHMETIC_OVERFLOW)),
    Function("dates_between", 2, 2, fixed(DAYS, DATE, DATE), always(ARITHMETIC_OVERFLOW)),
    Function("interval_times", 2, 2, _interval_times, always("INTERVAL_ARITHMETIC_OVERFLOW")),
    Function("interval_divided", 2, 2, _interval_times, always("INTERVAL_DIVIDED_BY_ZERO")),
    Function(
        "make_dt_interval",
        4,
        4,
        fixed(DAYS, INT, INT, INT, SqlType("decimal", 18, 6)),
        always("INTERVAL_ARITHMETIC_OVERFLOW"),
    ),
    Function("make_ym_interval", 2, 2, fixed(MONTHS, INT, INT), always("INTERVAL_ARITHMETIC_OVERFLOW")),
    Function("interval_truncated", 2, 2, _interval_truncated),
    *(Function(name, 1, 1, fixed(result, of)) for name, _, of, result in PARTS.values()),
)
