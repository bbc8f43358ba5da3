"""More functions of dates and times: parts, distances, text in a literal pattern. The time zone is UTC."""

from __future__ import annotations

import re

from tidemark_protocol.casts import ARITHMETIC_OVERFLOW
from tidemark_protocol.functions.call_errors import DATETIME_OVERFLOW, NOTHING, always, never
from tidemark_protocol.functions.call_types import fixed, literal_text, of_names, types_of
from tidemark_protocol.functions.entry import Function, maybe
from tidemark_protocol.plan.expr import Call, ScalarExpr
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTEGRAL_WIDTH, STRING, TIMESTAMP, SqlType

_NTZ = SqlType("timestamp_ntz")
UNITS = frozenset("MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR".split())
_FINE_UNITS = frozenset({"MICROSECOND", "MILLISECOND"})
_DAYS = frozenset(
    "SU SUN SUNDAY MO MON MONDAY TU TUE TUESDAY WE WED WEDNESDAY TH THU THURSDAY FR FRI FRIDAY SA SAT SATURDAY".split()
)
_ZONE_NAME = re.compile(r"UTC|[+-][0-9]{2}:[0-9]{2}|[A-Z][\w+-]*(/[\w+-]+)+", re.ASCII)
# Pattern letters that are the same in every locale, or always English, and separators.
_PATTERN = re.compile(r"(y{4}|yy|M{1,4}|d{1,2}|H{1,2}|h{1,2}|m{1,2}|s{1,2}|S{1,9}|a|E{1,4}|D{1,3}|[ ,.:/_-])+")


def patterned(argument: ScalarExpr) -> bool:
    """Whether the argument is a literal pattern of the letters that are allowed."""
    return _PATTERN.fullmatch(literal_text(argument) or "") is not None


def _formatted(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return types_of(arguments) == (TIMESTAMP, STRING) and result == STRING and patterned(arguments[1])


def _parsed(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return types_of(arguments) == (STRING, STRING) and result == TIMESTAMP and patterned(arguments[1])


def _parsed_ntz(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return result == _NTZ and _parsed(arguments, TIMESTAMP)


def _as_text(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """from_unixtime."""
    return types_of(arguments) == (BIGINT, STRING) and result == STRING and patterned(arguments[1])


def _as_seconds(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """to_unix_timestamp."""
    return result == BIGINT and _parsed(arguments, TIMESTAMP)


def _is_zone(argument: ScalarExpr) -> bool:
    return _ZONE_NAME.fullmatch(literal_text(argument) or "") is not None


def _in_zone(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return types_of(arguments) == (TIMESTAMP, STRING) and result == TIMESTAMP and _is_zone(arguments[1])


def _between_zones(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return all(map(_is_zone, arguments[:2])) and result == _NTZ and arguments[2].type == _NTZ


def _unit(argument: ScalarExpr) -> bool:
    return literal_text(argument) in UNITS


def _distance(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return types_of(arguments[1:]) == (TIMESTAMP, TIMESTAMP) and result == BIGINT and _unit(arguments[0])


def _distance_errors(call: Call) -> frozenset[str]:
    return frozenset({ARITHMETIC_OVERFLOW}) if literal_text(call.arguments[0]) in _FINE_UNITS else NOTHING


def _moved(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return types_of(arguments[1:]) == (BIGINT, TIMESTAMP) and result == TIMESTAMP and _unit(arguments[0])


def _next_day(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """A literal day of the week is one."""
    name = literal_text(arguments[1])
    return fixed(DATE, DATE, STRING)(arguments, result) and (name is None or name.upper() in _DAYS)


def _day_errors(call: Call) -> frozenset[str]:
    return NOTHING if literal_text(call.arguments[1]) is not None else frozenset({"ILLEGAL_DAY_OF_WEEK"})


_FIELDS = (INT, INT, INT, INT, INT, SqlType("decimal", 16, 6))
_ZONE = "INVALID_TIMEZONE"
DATES = (
    Function("last_day", 1, 1, fixed(DATE, DATE)),
    *(Function(n, 1, 1, fixed(INT, DATE)) for n in ("weekday", "dayofyear", "weekofyear", "yearofweek", "unix_date")),
    *(Function(n, 1, 1, fixed(STRING, DATE)) for n in ("dayname", "monthname")),
    Function("date_from_unix_date", 1, 1, fixed(DATE, INT)),
    Function("make_date", 3, 3, fixed(DATE, INT, INT, INT), always("DATETIME_FIELD_OUT_OF_BOUNDS")),
    Function("next_day", 2, 2, _next_day, _day_errors),
    Function("months_between", 3, 3, fixed(DOUBLE, TIMESTAMP, TIMESTAMP, BOOLEAN)),
    Function("second_with_fraction", 1, 1, of_names(SqlType("decimal", 8, 6), "timestamp", "timestamp_ntz")),
    Function("date_format", 2, 2, _formatted),
    Function("to_timestamp", 2, 2, _parsed, always("CANNOT_PARSE_TIMESTAMP")),
    Function("to_timestamp_ntz", 2, 2, _parsed_ntz, always("CANNOT_PARSE_TIMESTAMP")),
    Function("try_to_timestamp", 2, 2, _parsed, nullable=maybe),
    Function("from_unixtime", 2, 2, _as_text),
    Function("to_unix_timestamp", 2, 2, _as_seconds, always("CANNOT_PARSE_TIMESTAMP")),
    *(
        Function(f"{n}_{suffix}", 6, 6, fixed(of, *_FIELDS), *kept)
        for suffix, of in (("ltz", TIMESTAMP), ("ntz", _NTZ))
        for n, kept in (
            ("make_timestamp", (always("DATETIME_FIELD_OUT_OF_BOUNDS"),)),
            ("try_make_timestamp", (never, maybe)),
        )
    ),
    *(Function(n, 2, 2, _in_zone, always(_ZONE)) for n in ("from_utc_timestamp", "to_utc_timestamp")),
    Function("convert_timezone", 3, 3, _between_zones, always(_ZONE)),
    Function("timestamp_micros", 1, 1, of_names(TIMESTAMP, *INTEGRAL_WIDTH)),
    *(
        Function(n, 1, 1, of_names(TIMESTAMP, *INTEGRAL_WIDTH), always(ARITHMETIC_OVERFLOW))
        for n in ("timestamp_seconds", "timestamp_millis")
    ),
    *(Function(n, 1, 1, fixed(BIGINT, TIMESTAMP)) for n in ("unix_seconds", "unix_millis", "unix_micros")),
    Function("timestampdiff", 3, 3, _distance, _distance_errors),
    Function("timestampadd", 3, 3, _moved, always(DATETIME_OVERFLOW)),
)
