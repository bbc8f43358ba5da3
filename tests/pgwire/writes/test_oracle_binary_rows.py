"""COPY FROM takes in binary the same as a real PostgreSQL: the rows of its own data, and of spoiled data."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.dialects.postgres import running
from tests.pgwire.test_oracle_values import VALUES, connect
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.values.rows import COPY_HEADER, COPY_TRAILER
from tidemark_pgwire.writes.binary_blocks import BinaryBlocks
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.written.refusal import WriteRefused
from tidemark_replica.storage.written.values import column_of_text
from tidemark_replica.values.arrow_types import arrow_type

pytestmark = pytest.mark.postgres
SEED = 20261128
KINDS = {kind: made for kind, made in VALUES.items() if kind not in ("binary", "timestamp_ntz")}
"""The types of written tables."""
STRICTER = ("22008", "22003", "22P03", "22P04", "54000")


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    with running() as server, connect(server) as made:
        yield made


def _columns(kinds: Sequence[str]) -> tuple[Column, ...]:
    return tuple(Column(f"c{at}", SqlType.parse(kind)) for at, kind in enumerate(kinds))


def _value(choice: random.Random, kind: str) -> Any:
    values = KINDS[kind][0]
    return None if choice.random() < 0.2 else choice.choice(values)


def _create(postgres: psycopg.Connection[Any], kinds: Sequence[str]) -> None:
    listed = ", ".join(f"c{at} {KINDS[kind][2]}" for at, kind in enumerate(kinds))
    postgres.execute("DROP TABLE IF EXISTS v")
    postgres.execute(f"CREATE TABLE v (at serial, {listed})".encode())


def _data(postgres: psycopg.Connection[Any], kinds: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> bytes:
    """The rows as PostgreSQL's data."""
    _create(postgres, kinds)
    names = ", ".join(f"c{at}" for at in range(len(kinds)))
    places = ", ".join(f"%s::{KINDS[kind][2]}" for kind in kinds)
    with postgres.cursor() as cursor:
        cursor.executemany(f"INSERT INTO v ({names}) VALUES ({places})".encode(), rows)
        with cursor.copy(f"COPY (SELECT {names} FROM v ORDER BY at) TO STDOUT (FORMAT binary)".encode()) as copy:
            return b"".join(copy)


def _values_of_rows(kinds: Sequence[str], data: bytes, piece: int) -> list[list[Any]]:
    """The columns' values, as the ingester takes the texts. Raises WireError."""
    columns, found = _columns(kinds), [list[Any]() for _ in kinds]
    blocks = BinaryBlocks("v", columns)

    def keep(texts: list[pa.Array] | None) -> None:
        for values, column, array in zip(found, columns, texts or [], strict=False):
            values += column_of_text(array, column, 1).to_pylist()

    for at in range(0, len(data), piece):
        blocks.add(data[at : at + piece])
        keep(blocks.take())
    keep(blocks.take_last())
    assert blocks.rows == len(found[0])
    return found


def _expected_values(kinds: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [
        pa.array([row[at] for row in rows], KINDS[kind][1]).cast(arrow_type(SqlType.parse(kind))).to_pylist()
        for at, kind in enumerate(kinds)
    ]


def test_random_rows_of_all_types(postgres: psycopg.Connection[Any]) -> None:
    choice = random.Random(SEED)
    rows = [tuple(_value(choice, kind) for kind in KINDS) for _ in range(300)]
    data = _data(postgres, list(KINDS), rows)
    for piece in (len(data), 1000, 65_537):
        assert repr(_values_of_rows(list(KINDS), data, piece)) == repr(_expected_values(list(KINDS), rows))


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_random_columns(postgres: psycopg.Connection[Any], seed: int) -> None:
    """Also those whose values look like the begin of a tuple."""
    choice = random.Random(SEED + seed)
    kinds = choice.choices(list(KINDS), k=choice.randint(1, 4))
    rows = [tuple(_value(choice, kind) for kind in kinds) for _ in range(choice.choice((0, 1, 2, 50)))]
    data = _data(postgres, kinds, rows)
    for piece in (len(data), choice.randint(1, 30)):
        assert repr(_values_of_rows(kinds, data, piece)) == repr(_expected_values(kinds, rows)), kinds


def test_values_that_look_like_tuples() -> None:
    tuple_ = struct.pack("!hi", 1, 10)
    texts = [tuple_.decode() * count for count in (0, 1, 2, 7)] + ["\x01", "\x01\x01", ""]
    texts = [text.replace("\0", "\x01") for text in texts]
    columns = (Column("i", SqlType("bigint")),)
    numbers = [
        struct.unpack("!q", value)[0] for value in (b"\0\1\0\0\0\2\0\1", b"\0\1\xff\xff\xff\xff\0\1", b"\0\1" * 4)
    ]
    data = COPY_HEADER + b"".join(struct.pack("!hiq", 1, 8, number) for number in numbers * 1000) + COPY_TRAILER
    blocks = BinaryBlocks("v", columns)
    blocks.add(data)
    found = blocks.take_last()
    assert found is not None
    assert [int(text) for text in found[0].to_pylist()] == numbers * 1000
    long = [text for text in texts for _ in range(300)]
    blocks = BinaryBlocks("v", (Column("s", SqlType("string")),))
    blocks.add(COPY_HEADER + b"".join(struct.pack("!hi", 1, len(each)) + each.encode() for each in long))
    found = blocks.take_last()
    assert found is not None
    assert found[0].to_pylist() == long


def _refusal(postgres: psycopg.Connection[Any], names: str, data: bytes) -> tuple[str | None, str | None] | None:
    """PostgreSQL's, and its place; None: it takes the data."""
    try:
        with postgres.cursor().copy(f"COPY v ({names}) FROM STDIN (FORMAT binary)".encode()) as copy:
            copy.write(data)
    except psycopg.Error as error:
        return error.sqlstate, (error.diag.context or "").partition(", column")[0]
    return None


def _spoiled(choice: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(choice.randint(1, 2)):
        at = choice.randrange(0 if choice.random() < 0.1 else len(COPY_HEADER), max(len(made), 20))
        match choice.randrange(4):
            case 0:
                made[at : at + 1] = [choice.choice((0, 1, 2, 4, 8, 0x40, 0xFF, at % 256 ^ 1 << choice.randrange(8)))]
            case 1:
                del made[at : at + choice.choice((1, 2, 4, 1000))]
            case 2:
                made[at:at] = choice.choice((b"\0", b"\xff\xff", b"\0\1", b"\xff\xff\xff\xff", COPY_TRAILER))
            case 3:
                made += choice.choice((b"\0", COPY_TRAILER, b"\0\1\0\0"))
    return bytes(made)


@pytest.mark.parametrize("seed", range(8))
def test_spoiled_data_are_refused_as_postgresql_refuses_them(postgres: psycopg.Connection[Any], seed: int) -> None:
    choice, taken, alike = random.Random(SEED + seed), 0, 0
    some = ("boolean", "smallint", "int", "bigint", "double", "string", "decimal(18,4)", "date", "timestamp")
    for number in range(60):
        kinds = choice.choices(some, k=choice.randint(1, 3))
        rows = [tuple(_value(choice, kind) for kind in kinds) for _ in range(choice.randint(1, 6))]
        data = _spoiled(choice, _data(postgres, kinds, rows))
        names = ", ".join(f"c{at}" for at in range(len(kinds)))
        postgres.execute("TRUNCATE v")
        theirs = _refusal(postgres, names, data)
        try:
            found = _values_of_rows(kinds, data, choice.choice((len(data) + 1, 7)))
        except WireError as error:
            ours = (error.sqlstate, error.where.partition(", column")[0])
            alike += ours == theirs
            if theirs is None or ours != theirs:
                assert ours[0] in STRICTER, (number, kinds, ours, theirs, data)
            continue
        except WriteRefused:
            continue  # by the ingester: more digits than the column has
        assert theirs is None, (number, kinds, theirs, data)
        taken += 1
        read = postgres.execute(f"SELECT {names} FROM v ORDER BY at".encode()).fetchall()
        assert repr(found) == repr(_expected_values(kinds, read)), (number, kinds, data)
    assert taken > 0
    assert alike > 30
