"""Times, reals and bytes as parameters in PostgreSQL's dialect: as psycopg, asyncpg and pgjdbc send them."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from tests.dialects.postgres import running
from tests.pgwire.frames import Frames
from tests.pgwire.served import Served
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages.backend import BINARY, TEXT
from tidemark_pgwire.statements.binding import bind, has_local_times, parameter_types
from tidemark_pgwire.statements.lexer import POSTGRES, significant
from tidemark_pgwire.values.parameters import decoded
from tidemark_planner.dialects.foreign_text import as_spark_text
from tidemark_protocol.types import Column, SqlType

TYPES = {"ts": "timestamp_ntz", "tz": "timestamp", "f": "float", "b": "binary"}
AT = datetime(2024, 1, 31, 10, 0, 0, 123456)
SINCE_2000 = struct.pack("!q", int((AT - datetime(2000, 1, 1)) / timedelta(microseconds=1)))


def spark_text(sql: str, dialect: str) -> str:
    columns = tuple(Column(name, SqlType.parse(of), True) for name, of in TYPES.items())
    return as_spark_text(sql, dialect, lambda parts, line, column: columns).text


@pytest.mark.parametrize(("oid", "format", "data", "literal"), [
    (1114, TEXT, b"2024-01-31 10:00:00.123456", "CAST('2024-01-31 10:00:00.123456' AS timestamp)"),
    (1114, TEXT, b"2024-01-31 10:00:00+02", "CAST('2024-01-31 10:00:00' AS timestamp)"),
    (1114, BINARY, SINCE_2000, "CAST('2024-01-31 10:00:00.123456' AS timestamp)"),
    (1114, TEXT, None, "CAST(NULL AS timestamp)"),
    (1184, TEXT, b"2024-01-31 10:00:00+02", "CAST('2024-01-31 08:00:00+00:00' AS timestamptz)"),
    (1184, TEXT, b"2024-01-31 10:00:00", "CAST('2024-01-31 10:00:00' AS timestamptz)"),
    (1184, BINARY, SINCE_2000, "CAST('2024-01-31 10:00:00.123456+00:00' AS timestamptz)"),
    (1184, BINARY, None, "CAST(NULL AS timestamptz)"),
    (700, TEXT, b"1.5", "CAST('1.5' AS real)"),
    (700, BINARY, struct.pack("!f", 0.1), "CAST('0.1' AS real)"),
    (700, BINARY, struct.pack("!f", 16777217.0), "CAST('16777216' AS real)"),
    (700, BINARY, struct.pack("!f", float("inf")), "CAST('Infinity' AS real)"),
    (700, TEXT, b"NaN", "CAST('NaN' AS real)"),
    (700, TEXT, None, "CAST(NULL AS real)"),
    (17, TEXT, b"\\x00FF", "CAST('\\x00ff' AS bytea)"),
    (17, TEXT, b"a\\000", "CAST('\\x6100' AS bytea)"),
    (17, BINARY, b"'\\", "CAST('\\x275c' AS bytea)"),
    (17, BINARY, None, "CAST(NULL AS bytea)"),
])  # fmt: skip
def test_a_parameter_becomes_a_literal_that_is_planned(oid: int, format: int, data: bytes | None, literal: str) -> None:
    bound = bind("SELECT $1 IS NULL", POSTGRES, [decoded(oid, format, data)])

    assert bound == f"SELECT  {literal}  IS NULL"
    assert spark_text(bound, "postgres")


@pytest.mark.parametrize(("oid", "format", "data"), [
    (1114, TEXT, b"infinity"), (1114, BINARY, struct.pack("!q", 2**63 - 1)),
    (1184, BINARY, struct.pack("!q", -(2**63))),
    (1184, TEXT, b"0044-03-15 00:00:00 BC"), (700, TEXT, b"1e40"), (700, TEXT, b"1e-50"), (17, TEXT, b"\\xzz"),
])  # fmt: skip
def test_a_value_that_has_no_literal_is_refused(oid: int, format: int, data: bytes) -> None:
    with pytest.raises(WireError):
        bind("SELECT $1", POSTGRES, [decoded(oid, format, data)])


def test_casts_tell_the_types_of_times() -> None:
    sql = "SELECT $1::timestamp, $2::timestamptz, $3::timestamp with time zone, $4::real, $5::bytea, $6::date"
    assert parameter_types(significant(sql, POSTGRES)) == {1: 1114, 2: 1184, 3: 1184, 4: 700, 5: 17, 6: 1082}


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("binary", ["%s", "%b", "%t"])
@pytest.mark.parametrize(
    "value", [AT, AT.replace(tzinfo=UTC), AT.replace(tzinfo=timezone(timedelta(hours=-5))), b"\0'"]
)
def test_psycopg_sends_times_and_bytes(server: Served, prepare: bool, binary: str, value: Any) -> None:
    with server.connect() as connection:
        connection.execute(f"SELECT a FROM s.a WHERE b >= {binary}".encode(), [value], prepare=prepare)

    sql, dialect = server.answers.asked[-1]
    column = "b" if isinstance(value, bytes) else "tz" if value.tzinfo else "ts"
    found = spark_text(sql.replace("b >=", f"{column} >="), dialect)
    if isinstance(value, bytes):
        assert found.endswith("b >= X'0027'")
    else:
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        assert f"CAST('{moment.isoformat(' ')}' AS TIMESTAMP" in found


@pytest.mark.parametrize(("zone", "utc"), [
    ("UTC", "2024-11-03 01:30:00"), ("America/New_York", "2024-11-03 06:30:00"),
    ("Europe/Berlin", "2024-11-03 00:30:00"),
])  # fmt: skip
def test_times_without_a_zone_are_of_the_sessions(server: Served, zone: str, utc: str) -> None:
    """The time is there twice in New York: PostgreSQL takes the second."""
    with server.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'".encode())
        connection.execute(b"SELECT a FROM s.a WHERE tz >= '2024-11-03 01:30'")

    sql, dialect = server.answers.asked[-1]
    assert dialect == ("postgres" if zone == "UTC" else f"postgres, time_zone={zone}")
    assert spark_text(sql, dialect).endswith(f"tz >= CAST('{utc}' AS TIMESTAMP)")


def test_a_time_in_binary_is_sent_for_a_parameter_that_is_cast(server: Served) -> None:
    """The client is asyncpg, say, which asks for the type first."""
    with Frames(server) as frames:
        frames.send(b"P", b"s\0SELECT a FROM s.a WHERE b >= $1::timestamptz\0\0\0")
        frames.send(b"D", b"Ss\0")
        frames.send(b"B", b"\0s\0\0\1\0\1\0\1\0\0\0\x08" + SINCE_2000 + b"\0\0")
        frames.send(b"E", b"\0\0\0\0\0")
        frames.send(b"S")
        told = dict(frames.until_ready())
    assert b"E" not in told
    assert told[b"t"] == struct.pack("!HI", 1, 1184)
    literal = "CAST('2024-01-31 10:00:00.123456+00:00' AS timestamptz)"
    assert server.answers.asked[-1][0].endswith(f"b >=  {literal} ::timestamptz")
    assert spark_text(server.answers.asked[-1][0].replace("b >=", "tz >="), "postgres")


def test_a_prepared_statement_keeps_the_zone_of_its_times(server: Served) -> None:
    """PostgreSQL reads a time of the text when the statement is prepared, and a parameter when it is bound."""
    with server.connect() as connection:
        connection.execute("PREPARE p AS SELECT a FROM s.a WHERE tz >= '2024-11-03 01:30'")
        connection.execute("PREPARE q (timestamptz) AS SELECT a FROM s.a WHERE tz >= $1 AND tz < '2024-11-03 07:00Z'")
        connection.execute("EXECUTE p")
        connection.execute("SET TimeZone = 'America/New_York'")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="prepared in the time zone UTC"):
            connection.execute("EXECUTE p")
        connection.execute("EXECUTE q ('2024-11-03 01:30')")
        assert "CAST('2024-11-03 06:30:00' AS TIMESTAMP)" in spark_text(*server.answers.asked[-1])
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("EXECUTE p")


@pytest.mark.postgres
def test_postgresql_keeps_the_zone_of_a_prepared_statements_times() -> None:
    with running() as server:
        found = server.rows(
            "PREPARE p (timestamptz) AS SELECT timestamptz '2024-11-03 01:30' = '2024-11-03 01:30Z', $1 = '2024-11-03 "
            "06:30Z'; SET TimeZone = 'America/New_York'; EXECUTE p ('2024-11-03 01:30')"
        )
    assert found == [("t", "t")]


def _days(at: date) -> bytes:
    return struct.pack("!i", (at - date(2000, 1, 1)).days)


def _micros(at: datetime, more: int = 0) -> bytes:
    return struct.pack("!q", (at - datetime(2000, 1, 1)) // timedelta(microseconds=1) + more)


@pytest.mark.parametrize(("oid", "data", "literal"), [
    (21, b"\x80\0", "CAST('-32768' AS smallint)"), (23, b"\x7f\xff\xff\xff", "CAST('2147483647' AS int)"),
    (20, b"\x80" + b"\0" * 7, "CAST('-9223372036854775808' AS bigint)"),
    (26, b"\xff" * 4, "CAST('4294967295' AS bigint)"),
    (701, struct.pack("!d", float("nan")), "CAST('NaN' AS double precision)"),
    (701, struct.pack("!d", float("-inf")), "CAST('-Infinity' AS double precision)"),
    (701, struct.pack("!d", 5e-324), "CAST('5e-324' AS double precision)"),
    (1082, _days(date.min), "CAST('0001-01-01' AS date)"), (1082, _days(date.max), "CAST('9999-12-31' AS date)"),
    (1114, _micros(datetime.min), "CAST('0001-01-01 00:00:00' AS timestamp)"),
    (1114, _micros(datetime.max), "CAST('9999-12-31 23:59:59.999999' AS timestamp)"),
    (1184, _micros(datetime.max), "CAST('9999-12-31 23:59:59.999999+00:00' AS timestamptz)"),
    (1700, struct.pack("!HhHH10H", 10, 9, 0, 0, 99, *[9999] * 9), f"CAST('{'9' * 38}' AS numeric(38, 0))"),
    (1700, struct.pack("!HhHH", 0, 0, 0, 3), "CAST('0.000' AS numeric(3, 3))"),
])  # fmt: skip
def test_values_in_binary_at_their_bounds(oid: int, data: bytes, literal: str) -> None:
    assert bind("SELECT $1", POSTGRES, [decoded(oid, BINARY, data)]) == f"SELECT  {literal} "


@pytest.mark.parametrize(("oid", "data"), [
    (21, b"\0\0\0\0"), (23, b"\0" * 8), (20, b"\0" * 4), (26, b"\0" * 8), (701, b"\0" * 4), (16, b""), (2950, b"\0"),
    (1082, struct.pack("!i", (date.max - date(2000, 1, 1)).days + 1)), (1082, struct.pack("!i", -(2**31))),
    (1082, struct.pack("!i", (date.min - date(2000, 1, 1)).days - 1)), (1114, _micros(datetime.max, 1)),
    (1114, _micros(datetime.min, -1)), (1184, _micros(datetime.max, 1)), (1184, struct.pack("!q", 2**63 - 1)),
    (1700, struct.pack("!HhHH10H", 10, 9, 0, 0, 999, *[9999] * 9)), (1700, struct.pack("!HhHH", 0, 0, 0xC000, 0)),
    (1700, struct.pack("!HhHH", 0, 0, 0xD000, 0)), (1700, struct.pack("!HhHH", 0, 0, 0xF000, 0)),
])  # fmt: skip
def test_values_in_binary_past_their_bounds_are_refused(oid: int, data: bytes) -> None:
    with pytest.raises(WireError, match="incorrect binary data format"):
        decoded(oid, BINARY, data)


@pytest.mark.parametrize(("sql", "local"), [
    ("SELECT a FROM t WHERE tz > '2024-01-31'", True), ("SELECT a FROM t WHERE tz > '2024-01-31 10:00'", True),
    ("SELECT a FROM t WHERE tz > ' 2024-01-31T10:00:00.5'", True), ("SELECT timestamptz '2024-01-31 10:00Z'", False),
    ("SELECT '2024-01-31 10:00:00.123456+05:30'", False), ("SELECT '2024-01-31 10:00-08', '2024-01-31'", True),
    ("SELECT a FROM t WHERE k = '7' AND s = 'x 2024-01-31'", False), ("SELECT $1", False),
])  # fmt: skip
def test_times_of_the_zone_are_found(sql: str, local: bool) -> None:
    assert has_local_times(sql) == local
