"""Values in both formats are byte for byte those of a real PostgreSQL, and its type oids and sizes, too."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.dialects.postgres import Postgres, running
from tidemark_pgwire.values.binary import binaries
from tidemark_pgwire.values.rows import columns_of
from tidemark_pgwire.values.text import texts
from tidemark_pgwire.values.types import modifier, of_sql
from tidemark_protocol.types import SqlType

pytestmark = pytest.mark.postgres
SEED, COUNT = 20261126, 300
CHOICE = random.Random(SEED)
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Africa/Monrovia")


def _floats(single: bool) -> list[float]:
    edges = [0.0, -0.0, 1.0, 0.1, 1e15, 1e14, 1e16, 999999.0, 1e6, 1e5, 123456.7, 1e-4, 1e-5, 9.999e-5, 5e-324, 1.5e300]
    edges += [math.nan, math.inf, -math.inf, 2**53 + 1.0, 1234567.0, 12345678901234567.0, 0.001, 0.0015, 1e22, 1e23]
    drawn = [struct.unpack("d", CHOICE.randbytes(8))[0] for _ in range(COUNT)]
    drawn += [round(CHOICE.uniform(-1e7, 1e7), CHOICE.randrange(8)) for _ in range(COUNT)]
    drawn += [CHOICE.uniform(-1, 1) * 10.0 ** CHOICE.randrange(-8, 20) for _ in range(COUNT)]
    values = [*edges, *drawn]
    return [_single(v) for v in values] if single else values


def _single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.inf


def _decimals(precision: int, scale: int) -> list[Decimal]:
    most = 10**precision - 1
    edges = [0, 1, -1, most, -most, 10**scale, 10_000, 9_999, 10**scale * 10_000 % most]
    drawn = [CHOICE.randrange(-(10**n), 10**n) for n in [CHOICE.randint(1, precision) for _ in range(COUNT)]]
    fitting = [n for n in [*edges, *drawn] if abs(n) <= most]
    return [Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in fitting]


def _days() -> list[date]:
    edges = [
        date(1, 1, 1),
        date(9999, 12, 31),
        date(1970, 1, 1),
        date(2000, 1, 1),
        date(1999, 12, 31),
        date(1582, 10, 10),
    ]
    return edges + [date.fromordinal(CHOICE.randint(1, date.max.toordinal())) for _ in range(COUNT)]


def _moments() -> list[datetime]:
    edges = [datetime(2000, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1900, 1, 1, 0, 0, 0, 100)]
    span = timedelta(days=3_650_000)
    drawn = [datetime(2, 1, 1) + CHOICE.random() * span for _ in range(COUNT)]
    whole = [each.replace(microsecond=CHOICE.choice([0, 500_000, 120])) for each in drawn]
    return [*edges, *drawn, *whole]


def _texts() -> list[str]:
    edges = [
        "",
        "NULL",
        "null",
        "a,b",
        'a"b',
        "a\\b",
        "{}",
        " ",
        "a b",
        "\t",
        "\n",
        "é",
        "😀",
        "x" * 3000,
        "\x01",
        "\u00a0",
        "\v",
    ]
    return edges + ["".join(CHOICE.choice('ab,"\\{} é\n') for _ in range(CHOICE.randrange(9))) for _ in range(COUNT)]


def _bytes() -> list[bytes]:
    return [b"", b"\0", b"\\", *(CHOICE.randbytes(CHOICE.randrange(40)) for _ in range(COUNT))]


def _integers(bits: int) -> list[int]:
    most = 2 ** (bits - 1)
    return [0, 1, -1, most - 1, -most, *(CHOICE.randrange(-most, most) for _ in range(COUNT))]


VALUES: dict[str, tuple[Sequence[Any], pa.DataType, str]] = {
    "boolean": ([True, False], pa.bool_(), "bool"),
    "tinyint": (_integers(8), pa.int8(), "int2"),
    "smallint": (_integers(16), pa.int16(), "int2"),
    "int": (_integers(32), pa.int32(), "int4"),
    "bigint": (_integers(64), pa.int64(), "int8"),
    "float": (_floats(True), pa.float32(), "float4"),
    "double": (_floats(False), pa.float64(), "float8"),
    "string": (_texts(), pa.string(), "text"),
    "binary": (_bytes(), pa.binary(), "bytea"),
    "date": (_days(), pa.date32(), "date"),
    "timestamp_ntz": (_moments(), pa.timestamp("us"), "timestamp"),
    "timestamp": ([m.replace(tzinfo=UTC) for m in _moments()], pa.timestamp("us", "UTC"), "timestamptz"),
    **{
        f"decimal({p},{s})": (_decimals(p, s), pa.decimal128(p, s), f"numeric({p},{s})")
        for p, s in ((1, 0), (5, 2), (9, 9), (18, 4), (18, 18), (20, 7), (38, 0), (38, 10), (38, 38))
    },
}


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection[Any]]:
    with running() as server, connect(server) as made:
        yield made


def connect(server: Postgres) -> psycopg.Connection[Any]:
    made = psycopg.connect(
        host=str(server.folder),
        port=server.port,
        user="test",
        dbname="postgres",
        autocommit=True,
        prepare_threshold=None,
    )
    made.execute("SET extra_float_digits = 1")
    return made


def fetched(connection: psycopg.Connection[Any], type: str, values: Sequence[Any], binary: bool) -> Any:
    """PostgreSQL's bytes of the values, and its description of the column."""
    with connection.cursor(binary=binary) as cursor:
        cursor.execute("DROP TABLE IF EXISTS v")
        cursor.execute(f"CREATE TABLE v (at int, v {type})")
        cursor.executemany(f"INSERT INTO v VALUES (%s, %s::{type})", list(enumerate(values)))
        cursor.execute("SELECT v FROM v ORDER BY at")
        result = cursor.pgresult
        assert result is not None
        found = [result.get_value(row, 0) for row in range(result.ntuples)]
        return found, (result.ftype(0), result.fsize(0), result.fmod(0))


def is_same_float(found: bytes | None, expected: bytes | None) -> bool:
    """PostgreSQL prints 9.999999999999999e+22 where 1e+23 is the same float, and shorter."""
    return (found, expected) == (b"1e+23", b"9.999999999999999e+22")


def described(type: str) -> tuple[int, int, int]:
    parsed = SqlType.parse(type)
    found = of_sql(parsed)
    return found.oid, found.size, modifier(parsed)


@pytest.mark.parametrize("type", VALUES)
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_oracle_values_are_postgresqls_bytes(connection: psycopg.Connection[Any], type: str, binary: bool) -> None:
    values, arrow, theirs = VALUES[type]
    column = pa.array([*values, None], arrow)
    expected, description = fetched(connection, theirs, [*values, None], binary)
    found = binaries(column, of_sql(SqlType.parse(type))) if binary else texts(column, of_sql(SqlType.parse(type)))
    assert [
        (v, f, e)
        for v, f, e in zip([*values, None], found, expected, strict=True)
        if f != e and not is_same_float(f, e)
    ] == []
    assert description == described(type)
    # a slice is not the array below it
    assert (binaries if binary else texts)(column.slice(1, 3), of_sql(SqlType.parse(type))) == expected[1:4]


@pytest.mark.parametrize("type", VALUES)
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_oracle_arrays_are_postgresqls_bytes(connection: psycopg.Connection[Any], type: str, binary: bool) -> None:
    values, arrow, theirs = VALUES[type]
    some = [value for value in values[:40] if value != 1e23] + [None]
    rows = [
        None,
        [],
        [None],
        *([CHOICE.choice(some) for _ in range(CHOICE.randrange(6))] for _ in range(60)),
        [values[0]],
    ]
    column, of = pa.array(rows, pa.list_(arrow)), of_sql(SqlType.parse(f"array<{type}>"))
    expected, description = fetched(connection, f"{theirs}[]", rows, binary)
    found = binaries(column, of) if binary else texts(column, of)
    assert [(v, f, e) for v, f, e in zip(rows, found, expected, strict=True) if f != e] == []
    assert description == described(f"array<{type}>")


@pytest.mark.parametrize("zone", ZONES)
def test_oracle_times_in_the_sessions_zone(connection: psycopg.Connection[Any], zone: str) -> None:
    values = [m.replace(tzinfo=UTC) for m in _moments()]
    connection.execute(f"SET TIME ZONE '{zone}'")
    try:
        expected, _ = fetched(connection, "timestamptz", values, False)
    finally:
        connection.execute("SET TIME ZONE 'UTC'")
    found = texts(pa.array(values, pa.timestamp("us", "UTC")), of_sql(SqlType.parse("timestamp")), zone)
    assert [(v, f, e) for v, f, e in zip(values, found, expected, strict=True) if f != e] == []


def test_oracle_years_that_python_does_not_have(connection: psycopg.Connection[Any]) -> None:
    days = [-719_163, -719_162, -719_528, -719_529, -730_000, -1_000_000, 2_932_897, 40_000_000]
    column = pa.array(days, pa.int32()).cast(pa.date32())
    with connection.cursor() as cursor:
        cursor.execute("SELECT (date '1970-01-01' + d)::text, (timestamp '1970-01-01' + d * interval '1 day')::text"
                       " FROM unnest(%s::int[]) WITH ORDINALITY AS u(d, at) ORDER BY at", [days])  # fmt: skip
        expected = cursor.fetchall()
    assert [(d or b"").decode() for d in texts(column, of_sql(SqlType("date")))] == [d for d, _ in expected]
    times = texts(column.cast(pa.timestamp("us")), of_sql(SqlType("timestamp_ntz")))
    assert [(t or b"").decode() for t in times] == [t for _, t in expected]


def test_what_postgresql_has_no_type_for_is_json() -> None:
    column = pa.array([{"a": 1, "b": [Decimal("1.50")]}, None])
    (struct,) = columns_of(["s"], ["struct<a:bigint,b:array<decimal(3,2)>>"])
    assert struct.type.name == "json"
    assert texts(column, struct.type) == binaries(column, struct.type) == [b'{"a": 1, "b": ["1.50"]}', None]
    (nested,) = columns_of(["n"], ["array<array<int>>"])
    assert texts(pa.array([[[1], None]]), nested.type) == [b"[[1], null]"]
