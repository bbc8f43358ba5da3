"""COPY FROM takes the same as a real PostgreSQL: the same rows of random data, or a refusal."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.dialects.postgres import running
from tests.pgwire.test_oracle_values import connect
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.statements.commands import CopyIn, CopyOut, parse
from tidemark_pgwire.statements.inserts import literal
from tidemark_pgwire.statements.lexer import significant, split
from tidemark_pgwire.writes.blocks import Blocks

pytestmark = pytest.mark.postgres
SEED, COUNT = 20261127, 2000
OPTIONS = (
    *("", "DELIMITER ','", "NULL 'a'", "CSV", "CSV HEADER", "CSV DELIMITER ';' NULL 'a'", "HEADER"),
    *("CSV QUOTE 'b'", "CSV QUOTE '0' NULL 'a'", "CSV FORCE NULL c0 NULL 'a'"),
    *("(FORMAT csv, FORCE_NOT_NULL (c0), NULL 'a')", "(FORMAT csv, QUOTE 'N', FORCE_NULL (c0), DELIMITER ';')"),
    *("CSV ESCAPE AS '\"' FORCE NOT NULL c0",),
)
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


def _rows_or_error(options: str, columns: int, data: bytes, piece: int) -> list[tuple[str | None, ...]] | WireError:
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
        if (texts := blocks.take_last()) is not None:
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
        found = _rows_or_error(options, columns, data, choice.randrange(1, 8))
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


WRITTEN = (
    "",
    "CSV",
    "CSV QUOTE ''''",
    "CSV ESCAPE '\\'",
    "CSV FORCE QUOTE *",
    "CSV FORCE QUOTE c1 NULL 'a'",
    "(FORMAT csv, QUOTE 'b', ESCAPE 'a', FORCE_QUOTE (c0, c1))",
    "(FORMAT csv, FORCE_QUOTE *, HEADER, DELIMITER ';')",
)


def test_random_rows(postgres: psycopg.Connection[tuple[str | None, ...]]) -> None:
    """COPY TO writes the same bytes."""
    choice = random.Random(SEED)
    for number in range(400):
        options, columns = choice.choice(WRITTEN), choice.choice((1, 2))
        row = [choice.choice((None, *("".join(choice.choices(PARTS, k=k)) for k in range(4)))) for _ in range(columns)]
        listed = SQL(", ").join(SQL("{}::text AS {}").format(v, Identifier(f"c{n}")) for n, v in enumerate(row))
        asked = SQL("COPY (SELECT {}) TO STDOUT " + options).format(listed)  # type: ignore[arg-type]
        command = parse(split(f"COPY (SELECT 1) TO STDOUT {options}", "postgres")[0])
        assert isinstance(command, CopyOut)
        made, names = command.options, [f"c{at}" for at in range(columns)]
        try:
            with postgres.transaction(force_rollback=True), postgres.cursor() as cursor, cursor.copy(asked) as copy:
                wanted = b"".join(map(bytes, copy))
        except psycopg.errors.UndefinedColumn:
            with pytest.raises(WireError, match="is none of COPY"):
                made.forced(names)
            continue
        found = made.line(tuple(name.encode() for name in names)) if made.header else b""
        found += made.line(tuple(None if each is None else each.encode() for each in row), made.forced(names))
        assert found == wanted, (number, options, row)


@pytest.mark.parametrize("options", [
    "QUOTE 'a'", "ESCAPE 'a'", "CSV QUOTE 'ab'", "CSV ESCAPE ''", "CSV QUOTE 'é'", "CSV QUOTE ','", "FORCE NOT NULL c0",
    "CSV NULL '\"'", "CSV QUOTE 'x' NULL 'axa'", "(FORCE_NULL (c0))", "CSV FORCE QUOTE c0", "CSV FORCE NULL *",
    "(FORMAT csv, FORCE_NOT_NULL *)", "(FORMAT binary, QUOTE 'a')", "CSV FORCE c0", "CSV FORCE NULL c9",
])  # fmt: skip
def test_wrong_options_of_copy_from(postgres: psycopg.Connection[tuple[str | None, ...]], options: str) -> None:
    def ours() -> None:
        command = parse(split(f"COPY t1 (c0) FROM STDIN {options}", "postgres")[0])
        assert isinstance(command, CopyIn)
        Blocks("t1", command.columns, command.options)

    copying = f"COPY t1 (c0) FROM STDIN {options}".encode()
    with pytest.raises(psycopg.Error) as wanted, postgres.transaction(), postgres.cursor() as c, c.copy(copying):
        pass
    with pytest.raises(WireError) as found:
        ours()
    assert found.value.sqlstate == wanted.value.sqlstate
