"""pgjdbc against the server and against a real PostgreSQL with the same tables: what a program sees is the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import psycopg
import pytest
import sqlglot

from tests.dialects.postgres import running
from tests.pgwire.duck import answered, forget_plans
from tests.pgwire.jdbc.pgjdbc import checks
from tests.pgwire.served import TOKEN, Rows, Served
from tests.pgwire.writes.written import MAY_INSERT, SPEC, written
from tests.ports import free_port
from tidemark_planner.dialects.foreign_text import as_spark_text
from tidemark_protocol.messages.planning import Refused

pytestmark = pytest.mark.postgres

MAY_WRITE = (MAY_INSERT, *(f"{verb} datasources/rows shop in namespace ns" for verb in ("update", "delete")))
REFUSED = ("no such relation", "a wrong statement", "a wrong statement in a transaction")
OTHERWISE = {
    **dict.fromkeys(REFUSED, ()),
    "keys that were made": ("error 0A000", "RETURNING is not supported", "then 1"),
    "a row that is edited": ("error 42601",),
    "a wrong password": ("error 28P01 FATAL",),
}
"""Checks that find something else at PostgreSQL, and what they find here."""
KIND_COLUMNS = next(table.columns for table in SPEC.tables if table.name == "kinds")
HELD = "SELECT i FROM shop.kinds WHERE i > 424242"
POSTGRES_TYPES = {"double": "double precision", "string": "text", "timestamp": "timestamptz", "float": "real"}
KINDS = """INSERT INTO shop.kinds VALUES
    (true, -7, 0, 9007199254740993, 0.5, 0.1, 12.50, 'it''s \\ "ü" $1 ?', '2026-01-31',
        '2026-01-31 12:00:00.123456+00'),
    (false, 32767, 1, -1, 1.25, 1e-9, -0.01, 'b', '1999-12-31', '1969-12-31 23:59:59+00'),
    (true, 0, 2, 0, -3, 1e300, 99999999.99, '', '2000-01-01', '2000-01-01 00:00:00+00'),
    (NULL, NULL, 3, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"""


@dataclass
class Both:
    """The results of the program at the server and at PostgreSQL; the rows of the
    tables after it. `before`: those of `shop.kinds` at PostgreSQL before it."""

    ours: Mapping[str, str]
    postgres: Mapping[str, str]
    before: list[tuple[object, ...]]
    our_rows: Mapping[str, list[tuple[object, ...]]]
    postgres_rows: Mapping[str, list[tuple[object, ...]]]


def _definitions() -> Iterator[str]:
    yield "CREATE SCHEMA shop"
    for table in SPEC.tables:
        types = [POSTGRES_TYPES.get(str(c.type), str(c.type)) for c in table.columns]
        columns = [f'"{c.name}" {type}' for c, type in zip(table.columns, types, strict=True)]
        key = ", ".join(f'"{name}"' for name in table.primary_key)
        yield f"CREATE TABLE shop.{table.name} ({', '.join([*columns, *([f'PRIMARY KEY ({key})'] if key else [])])})"
    yield KINDS


def _as_lists(sql: str) -> str:
    """Comparisons with arrays as the planner reads them, in DuckDB's words."""
    [text] = sqlglot.transpile(as_spark_text(sql, "postgres", lambda *_: KIND_COLUMNS).text, "spark", "duckdb")
    return text


@contextmanager
def _answering(server: Served) -> Iterator[None]:
    """Statements over `shop.kinds` are answered by DuckDB; the one that is held by nothing."""
    duck = duckdb.connect()
    for statement in _definitions():
        duck.execute(statement.replace("timestamptz", "timestamp").replace("+00'", "'"))

    duck.execute("INSERT INTO shop.orders VALUES (1, 'A')")  # what the program reads after it wrote it

    def answer(sql: str, dialect: str) -> Rows | Refused:
        server.answers.held = asyncio.Event() if "424242" in sql else None
        return answered(duck, _as_lists(sql) if "= ANY" in sql or "<> ALL" in sql else sql)

    server.says(answer)
    forget_plans(server)
    yield
    duck.close()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    port = free_port()
    address = {"host": "127.0.0.1", "port": port, "user": "test", "autocommit": True}
    with (
        running("listen_addresses=127.0.0.1", port=port),
        written(tmp_path_factory.mktemp("jdbc"), MAY_WRITE) as tables,
    ):
        with psycopg.connect(dbname="postgres", **address) as connection:
            connection.execute("CREATE DATABASE ns")
            connection.execute("CREATE USER anne SUPERUSER")
        with psycopg.connect(dbname="ns", **address) as connection, _answering(tables.server):
            for statement in _definitions():
                connection.execute(statement.encode())
            before = connection.execute("SELECT * FROM shop.kinds").fetchall()
            server = f"127.0.0.1:{tables.server.port}/ns?sslmode=verify-full&sslrootcert={tables.server.authority}"
            servers = (server, HELD), (f"127.0.0.1:{port}/ns", "SELECT pg_sleep(600)")
            ours, theirs = checks(TOKEN, *((f"jdbc:postgresql://{at}", held) for at, held in servers))
            rows = {t.name: connection.execute(f"SELECT * FROM shop.{t.name}".encode()).fetchall() for t in SPEC.tables}
            yield Both(ours, theirs, before, {name: tables.rows(name) for name in rows}, rows)


def test_a_program_sees_the_same(found: Both) -> None:
    assert found.ours.keys() == found.postgres.keys()
    for name, wanted in found.postgres.items():
        if name not in OTHERWISE:
            assert found.ours[name] == wanted, name
    expected = (*REFUSED, "read only", "a read only transaction")
    wrong = {name: text for name, text in found.postgres.items() if text.startswith("error") and name not in expected}
    assert not wrong, "the program itself is wrong"
    assert len(found.postgres) - len(OTHERWISE) > 30


@pytest.mark.parametrize("name", OTHERWISE)
def test_differences_are_those_that_docs_tell(found: Both, name: str) -> None:
    for part in OTHERWISE[name]:
        assert part in found.ours[name]


def test_errors_have_postgresqls_sqlstate(found: Both) -> None:
    for name in REFUSED:
        assert found.ours[name].split()[:2] == found.postgres[name].split()[:2]
        assert found.ours[name].endswith("then 1")


def test_the_rows_are_the_same(found: Both) -> None:
    for name, wanted in found.postgres_rows.items():
        left = Counter(wanted) - Counter(found.before if name == "kinds" else ())
        if name == "orders":
            left -= Counter([(8, "x")])  # of RETURNING, which is refused
        assert left == Counter(found.our_rows[name]), name
