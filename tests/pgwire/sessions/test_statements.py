"""Statements of sessions, by psycopg and raw libpq: queries, transactions, settings, cursors, COPY, errors."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.pgwire.frames import Frames
from tests.pgwire.served import ONE, Rows, Served
from tidemark_pgwire.statements.lexer import split
from tidemark_protocol.messages.planning import Diagnostic, Refused
from tidemark_protocol.types import BIGINT, Column

MANY = Rows((Column("a", BIGINT),), pa.table({"a": pa.array(range(5000), pa.int64())}))


def statements(server: Served) -> list[str]:
    return [sql for sql, _ in server.answers.asked]


def test_statements_are_divided_as_postgresql_does(server: Served) -> None:
    with server.connect() as connection:
        found = connection.execute("SELECT 'a;b' AS x FROM s.a; /* ; */ SELECT $$;$$ FROM s.a;; -- ;")
        assert found.fetchall() == [(1,), (2,), (3,)]
        assert found.nextset()
        assert not found.nextset()
    assert statements(server) == ["SELECT 'a;b' AS x FROM s.a", " /* ; */ SELECT $$;$$ FROM s.a"]


def test_a_transaction_reads_at_one_time(server: Served) -> None:
    with server.connect(autocommit=True) as connection, connection.transaction():
        server.answers.read.clear()
        connection.execute("SELECT a FROM s.a")
        connection.execute("SELECT a FROM s.a WHERE a > 1")
        assert server.answers.read == [499, 499]


def test_a_transaction_that_failed_refuses_statements_until_its_end(server: Served) -> None:
    server.says(lambda sql, dialect: Refused((Diagnostic("SYNTAX", "no"),)) if "wrong" in sql else ONE)
    with server.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT a FROM s.a")
        connection.execute("SAVEPOINT before")
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("SELECT wrong")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT a FROM s.a")
        connection.execute("ROLLBACK TO before")
        connection.execute("SELECT a FROM s.a")
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("SELECT wrong")
        assert connection.execute("COMMIT").statusmessage == "ROLLBACK"
        connection.execute("SELECT a FROM s.a")


def unresolved(sql: str, dialect: str) -> Rows | Refused:
    """The planner's answer where the statement has the column `nme`."""
    before, found, _ = sql.partition("nme")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    wrong = Diagnostic("UNRESOLVED_COLUMN", "no such column", line=line, column=column, word="nme")
    return Refused((wrong,)) if found else ONE


def test_errors_have_their_sqlstate_and_position(server: Served) -> None:
    server.says(unresolved)
    with server.connect() as connection:
        with pytest.raises(psycopg.errors.UndefinedColumn) as failed:
            connection.execute("SELECT\n  nme FROM s.a")
        assert failed.value.diag.statement_position == "10"
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="cannot execute TRUNCATE"):
            connection.execute("TRUNCATE t")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM s.a; SELECT\n  nme FROM s.a",
        "COPY (SELECT\n nme FROM s.a) TO STDOUT",
        "COPY s.nme TO STDOUT",
        "DECLARE c CURSOR WITH HOLD FOR SELECT nme FROM s.a",
        "EXPLAIN SELECT nme FROM s.a",
    ],
)
def test_positions_count_in_the_clients_text(server: Served, text: str) -> None:
    server.says(unresolved)
    with server.connect() as connection:
        with pytest.raises(psycopg.errors.UndefinedColumn) as failed:
            connection.execute(text)
        assert failed.value.diag.statement_position == str(text.index("nme") + 1)


def test_an_error_in_another_text_than_the_clients_has_no_position(server: Served) -> None:
    """Parameters became literals before it; a SUBSCRIBE names its subject alone to the gateway."""
    server.says(unresolved)
    with Frames(server) as frames:
        frames.send(b"P", b"s\0SELECT $1, nme FROM s.a\0\0\1\0\0\0\x17")
        frames.send(b"D", b"Ss\0")
        frames.send(b"S")
        described = dict(frames.until_ready())[b"E"]
        frames.send(b"Q", b"SUBSCRIBE (SELECT nme FROM s.a)\0")
        subscribed = dict(frames.until_ready())[b"E"]
    for error in (described, subscribed):
        assert b"C42703\0" in error
        assert b"\0P" not in error


@pytest.mark.parametrize(("setting", "value", "field", "expected"), [
    ("tidemark.as_of", "321", "read", 321),
    ("tidemark.as_of", "1970-01-01 00:00:00.321", "read", 321),
    ("dialect", "spark", "dialect", "spark"),
])  # fmt: skip
def test_settings_of_tidemark(server: Served, setting: str, value: str, field: str, expected: Any) -> None:
    with server.connect() as connection:
        connection.execute(f"SET {setting} = '{value}'")
        connection.execute(f"SELECT count(a) AS set_{field} FROM s.a WHERE '{value}' <> ''")
        found = server.answers.read[-1] if field == "read" else server.answers.asked[-1][1]
        assert found == expected
        connection.execute(f"RESET {setting}")
        connection.execute(f"SELECT count(a) AS reset_{field} FROM s.a WHERE '{value}' <> ''")
        assert (server.answers.read[-1], server.answers.asked[-1][1]) == (499, "postgres")


def test_set_in_a_transaction_is_rolled_back(server: Served) -> None:
    with server.connect() as connection:
        for end, expected in (("ROLLBACK", "UTC"), ("COMMIT", "Europe/Berlin")):
            connection.execute("BEGIN")
            connection.execute("SET TIME ZONE 'Europe/Berlin'")
            connection.execute("SET LOCAL application_name = 'x'")
            assert connection.execute("SHOW application_name").fetchone() == ("x",)
            connection.execute(end)
            assert connection.execute("SHOW timezone").fetchone() == (expected,)
            assert connection.execute("SHOW application_name").fetchone() == ("",)
            assert connection.info.parameter_status("TimeZone") == expected
        with pytest.raises(psycopg.errors.UndefinedObject):
            connection.execute("SET nonsense = 1")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SET timezone = 'Nowhere/Else'")


def test_drivers_know_how_the_dialect_reads_backslashes(server: Served) -> None:
    """Some write literals into statements, and double backslashes where strings are not standard-conforming."""
    hostile = "\\' OR 1=1 --"
    with server.connect() as connection:
        for change, expected in (
            ("SELECT a FROM s.a", "on"),
            ("SET dialect = spark", "off"),
            ("BEGIN", "off"),
            ("SET LOCAL dialect = postgres", "on"),
            ("COMMIT", "off"),
            ("RESET ALL", "on"),
        ):
            connection.execute(change)
            assert connection.info.parameter_status("standard_conforming_strings") == expected
            assert connection.execute("SHOW standard_conforming_strings").fetchone() == (expected,)
            written = psycopg.pq.Escaping(connection.pgconn).escape_string(hostile.encode())
            text = split("SELECT '" + bytes(written).decode() + "'", connection.execute("SHOW dialect").fetchone()[0])  # type: ignore[index]
            assert {token.kind for token in text[0].tokens[1:]} == {"text"}
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SET standard_conforming_strings = off")
    with server.connect(options="-c dialect=spark") as connection:
        assert connection.info.parameter_status("standard_conforming_strings") == "off"


def test_a_message_does_not_change_the_rules_of_its_own_texts(server: Served) -> None:
    with server.connect() as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="changes the dialect"):
            connection.execute("SET dialect = spark; SELECT a FROM s.a WHERE b = '\\'' OR 1=1 --'")
        connection.execute("RESET dialect")
        connection.execute("SET dialect = spark;SELECT a FROM s.a WHERE b = 'c'")
    assert server.answers.asked == [("SELECT a FROM s.a WHERE b = 'c'", "spark")]


def test_copy_reads_its_query_by_the_dialect(server: Served) -> None:
    with server.connect() as connection:
        connection.execute("SET dialect = spark")
        with connection.cursor().copy("COPY (SELECT a FROM s.a WHERE b = 'it\\'s') TO STDOUT") as copy:
            assert b"".join(copy) == b"1\n2\n3\n"
    assert server.answers.asked == [("SELECT a FROM s.a WHERE b = 'it\\'s'", "spark")]


def test_cursors_of_sql_and_of_psycopg(server: Served) -> None:
    server.says(lambda sql, dialect: MANY)
    with server.connect(autocommit=True) as connection, connection.transaction():
        connection.execute("DECLARE c CURSOR FOR SELECT a FROM s.a")
        assert connection.execute("FETCH 3 FROM c").fetchall() == [(0,), (1,), (2,)]
        assert connection.execute("MOVE 10 IN c").statusmessage == "MOVE 10"
        assert connection.execute("FETCH c", binary=True).fetchall() == [(13,)]
        assert len(connection.execute("FETCH ALL c").fetchall()) == 5000 - 14
        assert connection.execute("FETCH 1 FROM c").fetchall() == []
        connection.execute("CLOSE c")
        with pytest.raises(psycopg.errors.InvalidCursorName), connection.transaction():
            connection.execute("FETCH c")
        for binary in (False, True):
            with connection.cursor("named", binary=binary) as cursor:
                cursor.itersize = 700
                cursor.execute("SELECT a FROM s.a WHERE a >= %s", [0])
                assert [a for (a,) in cursor] == list(range(5000))


def test_execute_with_a_limit_of_rows_suspends_the_portal(server: Served) -> None:
    """JDBC's fetch size does so. libpq has no such call, so the frames are ours."""
    server.says(lambda sql, dialect: MANY)
    with Frames(server) as frames:
        frames.send(b"P", b"\0SELECT a FROM s.a\0\0\0")
        frames.send(b"B", b"p\0\0\0\0\0\0\0\0")
        frames.send(b"E", b"p\0\0\0\0\x02")
        frames.send(b"E", b"p\0\0\0\0\x03")
        frames.send(b"E", b"p\0\0\0\0\x00")
        frames.send(b"S")
        kinds = [kind for kind, _ in frames.until_ready()]
    text = b"".join(kinds)
    assert text == b"12" + b"DDs" + b"DDDs" + b"D" * 4995 + b"CZ"


def test_copy_writes_text_and_csv(server: Served) -> None:
    columns = (Column("a", BIGINT), Column("b c", BIGINT))
    rows = Rows(columns, pa.table({"a": [1, None], "b": [2, 3]}))
    server.says(lambda sql, dialect: rows)
    with server.connect() as connection:
        for options, expected in (
            ("", "1\t2\n\\N\t3\n"),
            ("WITH (FORMAT csv, HEADER)", "a,b c\n1,2\n,3\n"),
            ("CSV HEADER DELIMITER ';' NULL 'nil'", "a;b c\n1;2\nnil;3\n"),
        ):
            with connection.cursor().copy(f"COPY (SELECT a, b FROM s.a) TO STDOUT {options}") as copy:
                assert b"".join(copy).decode() == expected
        with connection.cursor().copy("COPY s.a TO STDOUT") as copy:
            assert b"".join(copy).decode() == "1\t2\n\\N\t3\n"
        with connection.cursor().copy("COPY s.a TO STDOUT WITH (FORMAT binary)") as copy:
            copy.set_types(["int8", "int8"])
            assert list(copy.rows()) == [(1, 2), (None, 3)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.cursor().copy("COPY a FROM STDIN"):
            pass
        assert connection.execute("SELECT a FROM s.a").fetchone() == (1, 2)
    assert statements(server)[0] == "SELECT a, b FROM s.a"


def test_prepared_statements_are_used_again(server: Served) -> None:
    with server.connect(prepare_threshold=0) as connection:
        for value in (1, 2, 3):
            assert len(connection.execute("SELECT a FROM s.a WHERE a > %s", [value]).fetchall()) == 3
        connection.execute("DISCARD ALL")
        assert connection.execute("SELECT a FROM s.a", prepare=False).fetchone() == (1,)
    assert [sql[-22:] for sql in statements(server)[:2]] == ["CAST('1' AS smallint) ", "CAST('2' AS smallint) "]
