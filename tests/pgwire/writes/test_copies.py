"""COPY FROM STDIN over the protocol, to the tables of a real ingester."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.pgwire.frames import Frames
from tests.pgwire.test_clients import psql
from tests.pgwire.writes.copied_rows import copy, names
from tests.pgwire.writes.written import Written, written
from tests.waiting import until
from tidemark_pgwire.statements.commands import CopyIn, parse
from tidemark_pgwire.statements.lexer import split
from tidemark_pgwire.writes import blocks


@pytest.fixture(scope="module")
def module_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with written(tmp_path_factory.mktemp("copies")) as made:
        yield made


@pytest.fixture
def tables(module_tables: Written) -> Written:
    module_tables.calls.clear()
    return module_tables


def test_rows_in_both_formats(tables: Written) -> None:
    with tables.server.connect() as connection:
        assert copy(connection, "COPY shop.plain FROM STDIN", b"1\ttext \\t\\\\n\n", b"\\N\ttext\n") == "COPY 2"
        csv = b'name,id\n"csv ""\n,",2\ncsv,\n"csv",\n'
        assert copy(connection, "COPY shop.plain (name, id) FROM STDIN WITH (FORMAT csv, HEADER)", csv) == "COPY 3"
        assert (
            copy(connection, "COPY shop.plain FROM STDIN CSV DELIMITER ';' NULL 'nil'", b"nil;semi\n3;semi") == "COPY 2"
        )
        with connection.cursor() as cursor:
            with cursor.copy("COPY shop.plain (id, name) FROM STDIN") as into:
                into.write_row((5, "row \t\n\\é"))
                into.write_row((None, "row"))
            assert cursor.statusmessage == "COPY 2"
        assert copy(connection, "COPY shop.plain FROM STDIN") == "COPY 0"
    assert len(tables.calls) == 4, "nothing is written where there are no rows"
    assert names(tables, "text") == [(1, "text \t\\n"), (None, "text")]
    assert names(tables, "csv") == [(2, 'csv "\n,'), (None, "csv"), (None, "csv")]
    assert names(tables, "semi") == [(3, "semi"), (None, "semi")]
    assert names(tables, "row") == [(5, "row \t\n\\é"), (None, "row")]


def test_values_as_postgresql_writes_them(tables: Written) -> None:
    with tables.server.connect() as connection:
        line = b"t\t 7 \t-5\t6\tNaN\t-Infinity\t1.50\tkinds\t2026-01-31\t2026-01-31 12:00:00.5+01\n"
        copy(connection, "COPY shop.kinds FROM STDIN", line, b"no" + b"\t\\N" * 9 + b"\n")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="row 2") as failed:
            copy(connection, "COPY shop.kinds (i) FROM STDIN", b"1\n1.5\n2\n")
        assert failed.value.diag.context == "COPY shop.kinds, line 2"
    first, second = sorted(tables.rows("kinds"), key=lambda row: row[0] is False)
    assert (first[0], *first[1:4], str(first[4]), first[5]) == (True, 7, -5, 6, "nan", float("-inf"))
    assert second == (False, *[None] * 9)


def test_many_rows_in_pieces_of_any_size(tables: Written) -> None:
    """Whatever the pieces, also those that are larger than messages may otherwise be."""
    lines = b"".join(b"%d\tmany \xc3\xa9 %d\n" % (n, n) for n in range(300_000))
    assert len(lines) > 4 * blocks.BLOCK_BYTES
    with tables.server.connect() as connection:
        for size in (10_001, len(lines)):
            pieces = [lines[at : at + size] for at in range(0, len(lines), size)]
            assert copy(connection, "COPY shop.plain FROM STDIN", *pieces) == "COPY 300000"
    found = names(tables, "many")
    assert len(found) == 600_000
    assert {row[1] for row in found} == {f"many é {n}" for n in range(300_000)}


def test_a_copy_is_of_its_transaction(tables: Written) -> None:
    with tables.server.connect() as connection:
        with connection.transaction():
            connection.execute("INSERT INTO shop.plain VALUES (1, 'of one')")
            copy(connection, "COPY shop.plain FROM STDIN", b"2\tof one\n")
            with connection.transaction(force_rollback=True):
                copy(connection, "COPY shop.plain FROM STDIN", b"3\tof one\n")
            assert tables.calls == []
        assert len(tables.calls) == 1
        with pytest.raises(psycopg.errors.BadCopyFileFormat), connection.transaction():  # noqa: PT012
            connection.execute("INSERT INTO shop.plain VALUES (4, 'of one')")
            copy(connection, "COPY shop.plain FROM STDIN", b"5\tof one\n6\n")
    assert names(tables, "of one") == [(1, "of one"), (2, "of one")]


@pytest.mark.parametrize(("options", "data", "sqlstate", "text"), [
    ("", b"1\tbad\n2\n", "22P04", 'missing data for column "name" (line 2)'),
    ("", b"1\tbad\n2\tbad\t3\n", "22P04", "extra data after last expected column (line 2)"),
    ("", b"1\tbad\n\n", "22P04", "missing data"),
    ("", b"1\tbad\n2\t\xff\n", "22021", "(line 2)"),
    ("", b"1\tbad\0\n", "22021", "0x00"),
    ("", b"1\tbad\rx\n", "22P04", "carriage return"),
    ("", b"1\tbad\\x41\n", "0A000", "octal and hexadecimal escapes"),
    ("", b"1\tbad\n\\.\n2\tbad\n", "22P04", "end-of-copy marker"),
    ("CSV", b'1,"bad\n2,x\n', "22P04", "unterminated CSV quoted field"),
    ("CSV", b'1,bad"x"\n', "22P04", "within a value"),
    ("CSV", b'1,"x\ny"\n2\n', "22P04", "(line 3)"),
])  # fmt: skip
def test_malformed_data_write_nothing_and_have_their_line(
    tables: Written, options: str, data: bytes, sqlstate: str, text: str
) -> None:
    with tables.server.connect() as connection:
        with pytest.raises(psycopg.Error) as failed:
            copy(connection, f"COPY shop.plain FROM STDIN {options}", data)
        assert failed.value.sqlstate == sqlstate
        assert text in str(failed.value)
        assert (failed.value.diag.context or "").startswith("COPY shop.plain, line ")
        assert connection.execute("SHOW dialect").fetchone() == ("postgres",)
    assert names(tables, "bad") == []
    assert tables.calls == []


def test_a_row_is_bounded(tables: Written) -> None:
    with tables.server.connect() as connection, pytest.raises(psycopg.errors.ProgramLimitExceeded):
        copy(connection, "COPY shop.plain FROM STDIN", *[b"x" * blocks.BLOCK_BYTES] * 6)
    assert tables.calls == []


@pytest.mark.parametrize("text", [
    "COPY shop.plain FROM '/etc/passwd'",
    "COPY shop.plain FROM PROGRAM 'id'",
    "COPY shop.plain FROM STDIN (FORMAT csv, HEADER match)",
    "COPY shop.plain (id) TO STDOUT",
])  # fmt: skip
def test_what_copy_has_not_is_refused(tables: Written, text: str) -> None:
    with tables.server.connect() as connection, pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute(text.encode())


def test_a_client_that_breaks_off_writes_nothing(tables: Written) -> None:
    with (  # noqa: PT012
        tables.server.connect() as connection,
        pytest.raises(RuntimeError, match="mine"),
        connection.cursor() as cursor,
        cursor.copy("COPY shop.plain FROM STDIN") as into,
    ):
        into.write(b"1\tbroken\n")
        raise RuntimeError("mine")
    with Frames(tables.server) as frames:
        frames.send(b"Q", b"COPY shop.plain FROM STDIN\0")
        assert frames.receive()[0] == b"G"
        frames.send(b"d", b"1\tbroken\n")
    spool = tables.server.server.spool
    until(lambda: not spool._used and not spool._copies)
    assert names(tables, "broken") == []
    assert tables.calls == []


def test_a_canceled_copy_leaves_the_rest_of_its_message_out(tables: Written) -> None:
    """The server waits for the rest of a piece when the cancel request comes: what follows is no message."""
    with Frames(tables.server) as frames:
        frames.send(b"Q", b"COPY shop.plain FROM STDIN\0")
        assert frames.receive()[0] == b"G"
        frames.socket.sendall(b"d" + (104).to_bytes(4, "big") + b"Q" * 50)
        connections = tables.server.server._connections
        running = next(each for each in connections.values() if each._running is not None)
        tables.server.loop.call(running.cancel)
        assert [kind for kind, _ in frames.until_ready()] == [b"E", b"Z"]
        frames.socket.sendall(b"Q" * 50)
        frames.send(b"c")
        frames.send(b"Q", b"SHOW dialect\0")
        assert b"postgres" in b"".join(body for _, body in frames.until_ready())


def test_psql_copies_a_file(tables: Written, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('id,name\n1,"psql ""file"""\n2,psql\n')
    done = psql(tables.server, f"\\copy shop.plain FROM '{file}' WITH (FORMAT csv, HEADER)")
    assert (done.returncode, done.stdout.strip()) == (0, "COPY 2"), done.stderr
    assert names(tables, "psql") == [(1, 'psql "file"'), (2, "psql")]
    file.write_text("1\tpsql\nx\tpsql\n")
    failed = psql(tables.server, f"\\copy shop.plain FROM '{file}'")
    assert failed.returncode == 1
    assert "COPY shop.plain, line 2" in failed.stderr


def test_a_dump_of_postgresql_is_taken(tables: Written) -> None:
    """The output of COPY ... TO STDOUT is taken by COPY ... FROM STDIN, by the server's own rows."""
    rows = [(1, "dump \\ \t\n\r,\"'"), (2, "dump"), (None, "dump é")]
    with tables.server.connect() as connection:
        for options in ("", "CSV", "DELIMITER ','", "CSV DELIMITER '|' NULL 'x'"):
            command = parse(split(f"COPY shop.plain FROM STDIN {options}", "postgres")[0])
            assert isinstance(command, CopyIn)
            cells = [tuple(None if cell is None else str(cell).encode() for cell in row) for row in rows]
            data = b"".join(map(command.options.line, cells))
            copy(connection, f"COPY shop.plain FROM STDIN {options}", data)
    assert sorted(names(tables, "dump"), key=repr) == sorted(rows * 4, key=repr)
