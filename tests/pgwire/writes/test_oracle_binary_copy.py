"""COPY TO in binary sends byte for byte what a real PostgreSQL sends, message for message."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.dialects.postgres import running
from tests.pgwire.served import Rows, Served, served
from tests.pgwire.test_oracle_values import VALUES, connect
from tidemark_protocol.types import Column, SqlType

pytestmark = pytest.mark.postgres
SEED, COUNT = 20261128, 150
CHOICE = random.Random(SEED)
ARRAYS = {f"array<{of}>": ([], pa.list_(arrow), f"{theirs}[]") for of, (_, arrow, theirs) in VALUES.items()}
KINDS: dict[str, tuple[Sequence[Any], pa.DataType, str]] = {**VALUES, **ARRAYS}


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    with running() as server, connect(server) as made:
        yield made


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, psycopg.Connection[Any]]]:
    with served(tmp_path_factory.mktemp("copies")) as server, server.connect() as made:
        yield server, made


def _value(kind: str) -> Any:
    if CHOICE.random() < 0.2:
        return None
    if kind in ARRAYS:
        some = VALUES[kind.removeprefix("array<").removesuffix(">")][0]
        return [CHOICE.choice([*some, None]) for _ in range(CHOICE.choice((0, 0, 1, 3)))]
    return CHOICE.choice(KINDS[kind][0])


def _sent(connection: psycopg.Connection[Any], text: str) -> list[bytes]:
    with connection.cursor().copy(text.encode()) as copy:
        return [bytes(each) for each in copy]


def _sent_by_both(postgres: psycopg.Connection[Any], ours: tuple[Served, psycopg.Connection[Any]], kinds: Sequence[str],
          rows: Sequence[tuple[Any, ...]]) -> tuple[list[bytes], list[bytes]]:  # fmt: skip
    """The bytes that PostgreSQL and Tidemark send of these rows."""
    server, connection = ours
    listed = ", ".join(f"c{at} {KINDS[kind][2]}" for at, kind in enumerate(kinds))
    places = ", ".join(f"%s::{KINDS[kind][2]}" for kind in kinds)
    with postgres.transaction(force_rollback=True), postgres.cursor() as cursor:
        cursor.execute(f"CREATE TABLE v (at serial, {listed})".encode())
        named = ", ".join(f"c{at}" for at in range(len(kinds)))
        cursor.executemany(f"INSERT INTO v ({named}) VALUES ({places})".encode(), rows)
        wanted = _sent(postgres, f"COPY (SELECT {named} FROM v ORDER BY at) TO STDOUT (FORMAT binary)")
    columns = tuple(Column(f"c{at}", SqlType.parse(kind)) for at, kind in enumerate(kinds))
    arrays = [pa.array([row[at] for row in rows], KINDS[kind][1]) for at, kind in enumerate(kinds)]
    table = pa.table(arrays, names=[column.name for column in columns])
    server.says(lambda sql, dialect: Rows(columns, table))
    return wanted, _sent(connection, "COPY (SELECT * FROM s.a) TO STDOUT (FORMAT binary)")


def test_random_rows_of_all_types(
    postgres: psycopg.Connection[Any], ours: tuple[Served, psycopg.Connection[Any]]
) -> None:
    rows = [tuple(map(_value, KINDS)) for _ in range(COUNT)]
    wanted, found = _sent_by_both(postgres, ours, list(KINDS), rows)
    assert len(wanted) == COUNT + 1
    assert found == wanted


@pytest.mark.parametrize("count", [0, 1, 2500])
def test_rows_of_random_columns(
    postgres: psycopg.Connection[Any], ours: tuple[Served, psycopg.Connection[Any]], count: int
) -> None:
    kinds = CHOICE.choices(list(KINDS), k=3)
    wanted, found = _sent_by_both(postgres, ours, kinds, [tuple(map(_value, kinds)) for _ in range(count)])
    assert found == wanted, kinds


@pytest.mark.parametrize("options", [
    "(FORMAT binary, DELIMITER ',')",
    "(NULL 'x', FORMAT binary)",
    "(FORMAT binary, HEADER)",
    "(FORMAT binary, HEADER false)",
    "BINARY NULL 'x'",
    "WITH BINARY",
    '(FORMAT "binary")',
    "(FORMAT bin)",
])  # fmt: skip
def test_options_are_taken_and_refused_alike(
    postgres: psycopg.Connection[Any], ours: tuple[Served, psycopg.Connection[Any]], options: str
) -> None:
    told = list[Any]()
    for connection, query in ((postgres, "SELECT 1::int8 AS a"), (ours[1], "SELECT a FROM s.a")):
        try:
            told.append(_sent(connection, f"COPY ({query} LIMIT 0) TO STDOUT {options}")[0][:11])
        except psycopg.Error as error:
            told.append((error.sqlstate, error.diag.message_primary))
    assert told[0] == told[1]


def test_what_adbc_reads(tmp_path: Path) -> None:
    """Its driver reads every query by COPY in binary, after its look-ups of types."""
    from adbc_driver_postgresql import dbapi

    rows = [tuple(map(_value, VALUES)) for _ in range(COUNT)]
    columns = tuple(Column(f"c{at}", SqlType.parse(kind)) for at, kind in enumerate(VALUES))
    arrays = [pa.array([row[at] for row in rows], arrow) for at, (_, arrow, _) in enumerate(VALUES.values())]
    table = pa.table(arrays, names=[column.name for column in columns])
    with served(tmp_path) as server:
        server.says(lambda sql, dialect: Rows(columns, table))
        options = server.options()
        address = f"postgresql://{options['user']}:{options['password']}@127.0.0.1:{options['port']}/ns"
        with dbapi.connect(f"{address}?sslmode=verify-full&sslrootcert={options['sslrootcert']}") as connection:
            with connection.cursor() as cursor:
                cursor.execute("SELECT * FROM s.a")
                found = cursor.fetch_arrow_table()
                cursor.execute("SELECT * FROM s.a WHERE c2 = $1", (7,))
                assert len(cursor.fetchall()) == COUNT
            catalogue = connection.adbc_get_objects().read_all().to_pylist()
            assert connection.adbc_get_table_schema("a", db_schema_filter="s").names == ["a"]
    for name, kind in zip(table.column_names, VALUES, strict=True):
        given = table[name].combine_chunks()
        if pa.types.is_decimal(given.type):
            given = given.cast(pa.string()) if given.type.scale == 0 else pa.array(_fixed(given), pa.string())
        read = found[name].combine_chunks()
        read = read.storage if isinstance(read, pa.ExtensionArray) else read
        assert repr(read.to_pylist()) == repr(given.cast(read.type).to_pylist()), kind
    schemas = {each["db_schema_name"] for each in catalogue[0]["catalog_db_schemas"]}
    assert "s" in schemas


def _fixed(decimals: pa.Array) -> list[str | None]:
    return [None if each is None else f"{each:f}" for each in decimals.to_pylist()]
