"""COPY FROM STDIN in binary over the protocol, to the tables of a real ingester."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest

from tests.pgwire.frames import Frames
from tests.pgwire.writes.copied_rows import copy, names
from tests.pgwire.writes.written import Written, written
from tidemark_pgwire.values.rows import COPY_HEADER, COPY_TRAILER
from tidemark_pgwire.writes import blocks

TYPES = ["bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "date", "timestamptz"]
MOMENT = datetime.datetime(2026, 1, 31, 12, 0, 0, 123456, datetime.UTC)
ROWS = [
    (True, -7, 70_000, 2**40, 0.5, -1e300, Decimal("12345678.90"), 'é\n\t,"', datetime.date(2026, 1, 31), MOMENT),
    (False, 32767, -(2**31), -(2**63), math.inf, 5e-324, Decimal("-0.01"), "", datetime.date(1, 1, 1), MOMENT),
    (None,) * 10,
]


@pytest.fixture(scope="module")
def module_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with written(tmp_path_factory.mktemp("copies")) as made:
        yield made


@pytest.fixture
def tables(module_tables: Written) -> Written:
    module_tables.calls.clear()
    return module_tables


def row(number: int | None, name: bytes | None) -> bytes:
    """A tuple of `plain`."""
    first = struct.pack("!hi", 2, -1) if number is None else struct.pack("!hiq", 2, 8, number)
    return first + (struct.pack("!i", -1) if name is None else struct.pack("!i", len(name)) + name)


def test_rows_of_psycopg(tables: Written) -> None:
    with tables.server.connect() as connection, connection.cursor() as cursor:
        with cursor.copy("COPY shop.kinds FROM STDIN WITH (FORMAT binary)") as into:
            into.set_types(TYPES)
            for each in ROWS:
                into.write_row(each)
        assert cursor.statusmessage == "COPY 3"
        with cursor.copy("COPY shop.plain (name, id) FROM STDIN BINARY") as into:
            into.set_types(["text", "int8"])
            into.write_row(("psycopg", 7))
    assert sorted(tables.rows("kinds"), key=repr) == sorted(ROWS, key=repr)
    assert names(tables, "psycopg") == [(7, "psycopg")]
    assert len(tables.calls) == 2


def test_the_client_is_asked_for_binary(tables: Written) -> None:
    with Frames(tables.server) as frames:
        frames.send(b"Q", b"COPY shop.plain FROM STDIN (FORMAT binary)\0")
        assert frames.receive() == (b"G", struct.pack("!bHHH", 1, 2, 1, 1))
        frames.send(b"d", COPY_HEADER + COPY_TRAILER)
        frames.send(b"c")
        assert dict(frames.until_ready())[b"C"] == b"COPY 0\0"
    assert tables.calls == []


def test_many_rows_in_pieces_of_any_size(tables: Written) -> None:
    count = 100_000
    data = COPY_HEADER + b"".join(row(n, b"many %d" % n) for n in range(count)) + COPY_TRAILER
    assert len(data) > 2 * blocks.BLOCK_BYTES
    with tables.server.connect() as connection:
        for size in (10_001, len(data)):
            pieces = [data[at : at + size] for at in range(0, len(data), size)]
            assert copy(connection, "COPY shop.plain FROM STDIN (FORMAT binary)", *pieces) == f"COPY {count}"
    found = names(tables, "many")
    assert len(found) == 2 * count
    assert set(found) == {(n, f"many {n}") for n in range(count)}


def test_a_copy_is_of_its_transaction(tables: Written) -> None:
    with tables.server.connect() as connection:
        with connection.transaction():
            connection.execute("INSERT INTO shop.plain VALUES (1, 'both formats')")
            copy(connection, "COPY shop.plain FROM STDIN (FORMAT binary)", COPY_HEADER, row(2, b"both formats"))
            copy(connection, "COPY shop.plain FROM STDIN", b"3\tboth formats\n")
            assert tables.calls == []
        with pytest.raises(psycopg.errors.BadCopyFileFormat), connection.transaction():  # noqa: PT012
            connection.execute("INSERT INTO shop.plain VALUES (4, 'both formats')")
            copy(connection, "COPY shop.plain FROM STDIN (FORMAT binary)", COPY_HEADER, row(2, b"both formats")[:-1])
    assert names(tables, "both formats") == [(n, "both formats") for n in (1, 2, 3)]


@pytest.mark.parametrize(("data", "sqlstate", "text", "where"), [
    (b"1\tbad\n" * 9, "22P04", "COPY file signature not recognized", ""),
    (COPY_HEADER[:13], "22P04", "missing flags", ""),
    (COPY_HEADER[:11] + b"\0\1\0\0" + bytes(4), "22P04", "WITH OIDS", ""),
    (COPY_HEADER[:11] + b"\0\2\0\0" + bytes(4), "22P04", "critical flags", ""),
    (COPY_HEADER[:15] + b"\0\0\0\x09" + bytes(4), "22P04", "wrong length", ""),
    (COPY_HEADER + row(1, b"bad") + struct.pack("!h", 3), "22P04", "row field count is 3, expected 2", ", line 2"),
    (COPY_HEADER + row(1, b"bad") + row(1, b"bad")[:-1], "22P04", "unexpected EOF", ", line 2"),
    (COPY_HEADER + row(1, b"bad") + struct.pack("!hi", 2, -2), "22P04", "invalid field size", ", line 2, column id"),
    (COPY_HEADER + COPY_TRAILER + row(1, b"bad"), "22P04", "after EOF marker", ", line 1"),
    (COPY_HEADER + row(1, b"bad") + row(2, b"bad\xff"), "22021", "UTF8", ", line 2, column name"),
    (COPY_HEADER + row(1, b"bad\0"), "22021", "0x00", ", line 1, column name"),
    (COPY_HEADER + row(1, b"bad") + struct.pack("!hiii", 2, 4, 5, -1), "08P01",
     "insufficient data left", ", line 2, column id"),
    (COPY_HEADER + struct.pack("!hi", 2, 9) + bytes(13), "22P03", "incorrect binary data", ", line 1, column id"),
    (COPY_HEADER + struct.pack("!hi", 2, 5 << 20), "54000", "at most 4 MiB", ", line 1"),
])  # fmt: skip
def test_malformed_data_write_nothing_and_have_their_line(
    tables: Written, data: bytes, sqlstate: str, text: str, where: str
) -> None:
    with tables.server.connect() as connection:
        for pieces in ([data], [bytes([byte]) for byte in data]):
            with pytest.raises(psycopg.Error, match=text) as failed:
                copy(connection, "COPY shop.plain FROM STDIN (FORMAT binary)", *pieces)
            assert failed.value.sqlstate == sqlstate
            assert (failed.value.diag.context or "") == (f"COPY shop.plain{where}" if where else "")
        assert connection.execute("SHOW dialect").fetchone() == ("postgres",)
    assert names(tables, "bad") == []
    assert tables.calls == []


@pytest.mark.parametrize(("column", "kind", "value", "sqlstate"), [
    ("day", "date", struct.pack("!i", 2**31 - 1), "22008"),
    ("at", "timestamptz", struct.pack("!q", -(2**63)), "22008"),
    ("price", "numeric", struct.pack("!hhHHh", 1, 200, 0, 0, 1), "22003"),
    ("price", "numeric", struct.pack("!hhHHh", 1, 0, 0, 0, 10_000), "22P03"),
    ("price", "numeric", struct.pack("!hhHH", 0, 0, 0xC000, 0), "22P02"),
    ("price", "numeric", struct.pack("!hhHHhh", 2, 0, 0, 3, 1, 10), "22P02"),
])  # fmt: skip
def test_values_that_no_column_has_are_refused_with_their_line(
    tables: Written, column: str, kind: str, value: bytes, sqlstate: str
) -> None:
    good = struct.pack("!hi", 1, -1)
    data = COPY_HEADER + good * 2 + struct.pack("!hi", 1, len(value)) + value + good + COPY_TRAILER
    with tables.server.connect() as connection:
        with pytest.raises(psycopg.Error) as failed:
            copy(connection, f"COPY shop.kinds ({column}) FROM STDIN (FORMAT binary)", data)
        assert failed.value.sqlstate == sqlstate, failed.value
        assert (failed.value.diag.context or "").startswith("COPY shop.kinds, line 3")


def test_rows_that_adbc_ingests(tables: Written) -> None:
    from adbc_driver_postgresql import dbapi

    options = tables.server.options()
    address = f"postgresql://{options['user']}:{options['password']}@127.0.0.1:{options['port']}/ns"
    rows = pa.table({"name": ["adbc é", None, "adbc"], "id": pa.array([1, 2, None], pa.int64())})
    with dbapi.connect(f"{address}?sslmode=verify-full&sslrootcert={options['sslrootcert']}") as connection:
        with connection.cursor() as cursor:
            assert cursor.adbc_ingest("plain", rows, mode="append", db_schema_name="shop") == 3
        connection.commit()
    assert names(tables, "adbc") == [(1, "adbc é"), (None, "adbc")]
    assert len(tables.calls) == 1
