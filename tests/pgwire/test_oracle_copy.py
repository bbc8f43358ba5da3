"""What COPY FROM takes is what a real PostgreSQL takes: the same rows of random data, or a refusal."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest

from tests.dialects.postgres import running
from tests.pgwire.test_oracle_values import connect
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.statements.commands import CopyIn, parse
from tidemark_pgwire.statements.inserts import literal
from tidemark_pgwire.statements.lexer import significant, split
from tidemark_pgwire.writes.blocks import Blocks

pytestmark = pytest.mark.postgres
SEED, COUNT = 20261127, 1500
OPTIONS = ("", "DELIMITER ','", "NULL 'a'", "CSV", "CSV HEADER", "CSV DELIMITER ';' NULL 'a'", "HEADER")
PARTS = (
    "a",
    "b",
    "N",
    "\\",
    "\\N",
    "\\n",
    "\\\\",
    "\\.",
    "\t",
    "\t",
    ",",
    ",",
    ";",
    '"',
    '"',
    '""',
    "\n",
    "\n",
    "\r",
    "é",
    " ",
    "0",
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[tuple[str | None, ...]]]:
    with running() as server, connect(server) as connection:
        for columns in (1, 2):
            listed = ", ".join(f"c{at} text" for at in range(columns))
            connection.execute(f"CREATE TEMP TABLE t{columns} (n serial, {listed})".encode())
        yield connection


def _taken(options: str, columns: int, data: bytes, piece: int) -> list[tuple[str | None, ...]] | WireError:
    command = parse(split(f"COPY t FROM STDIN {options}", "postgres")[0])
    assert isinstance(command, CopyIn)
    blocks, rows = (
        Blocks("t", tuple(f"c{at}" for at in range(columns)), command.options),
        list[tuple[str | None, ...]](),
    )
    try:
        for at in range(0, len(data), piece):
            blocks.add(data[at : at + piece])
            if (texts := blocks.take()) is not None:
                rows += zip(*[column.to_pylist() for column in texts], strict=True)
        if (texts := blocks.last()) is not None:
            rows += zip(*[column.to_pylist() for column in texts], strict=True)
    except WireError as error:
        return error
    return rows


def test_random_data(postgres: psycopg.Connection[tuple[str | None, ...]]) -> None:
    choice, taken, refused = random.Random(SEED), 0, 0
    for number in range(COUNT):
        options, columns = choice.choice(OPTIONS), choice.choice((1, 2))
        data = "".join(choice.choice(PARTS) for _ in range(choice.randrange(1, 14))).encode()
        if choice.random() < 0.2:
            data = data.replace(b"\n", b"\r\n")  # PostgreSQL wants the same everywhere
        found = _taken(options, columns, data, choice.randrange(1, 8))
        if isinstance(found, WireError):
            continue
        taken += 1
        listed = ", ".join(f"c{at}" for at in range(columns))
        try:
            with postgres.transaction(force_rollback=True), postgres.cursor() as cursor:
                with cursor.copy(f"COPY t{columns} ({listed}) FROM STDIN {options}".encode()) as copy:
                    copy.write(data)
                wanted = cursor.execute(f"SELECT {listed} FROM t{columns} ORDER BY n".encode()).fetchall()
        except psycopg.errors.BadCopyFileFormat:
            refused += 1
            continue
        assert found == wanted, (number, options, data)
    assert taken > COUNT / 10, "most random data are malformed, but not all"
    assert refused < taken / 10, "PostgreSQL refuses ends of lines of two kinds, and marks within a line of csv"


def test_random_literals(postgres: psycopg.Connection[tuple[str | None, ...]]) -> None:
    choice = random.Random(SEED)
    parts = ("a", "é", "\\\\", "\\'", "''", "\\n", "\\x41", "\\101", "\\u00e9", "\\q", "\\U0001f600", "$", "\n", "\\t")
    for number in range(300):
        chosen = [choice.choice(parts) for _ in range(choice.randrange(8))]
        inner, plain = "".join(chosen), "".join(part for part in chosen if part != "\\'")
        text = choice.choice((f"E'{inner}'", f"$x${inner}$x$", f"'{plain}'"))
        (token,) = significant(text, "postgres")
        wanted = postgres.execute(f"SELECT {text}".encode()).fetchone()
        assert (literal(token, "postgres"),) == wanted, (number, text)
