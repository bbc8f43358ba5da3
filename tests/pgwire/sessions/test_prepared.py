"""PREPARE, EXECUTE and DEALLOCATE in SQL: as PostgreSQL has them, and with the same statements as the protocol's."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from tests.dialects.postgres import running
from tests.pgwire.duck import answered, forget_plans
from tests.pgwire.frames import Frames
from tests.pgwire.served import Served
from tests.pgwire.test_oracle_values import connect
from tests.pgwire.writes.written import MAY_INSERT, written

VARCHAR, TEXT = 1043, 25
SCRIPTS = (
    ("PREPARE q AS SELECT 1", "EXECUTE q", "EXECUTE q()", "DEALLOCATE q", "EXECUTE q"),
    ("PREPARE q (int) AS SELECT $1", "EXECUTE q(5)", "EXECUTE q('6')", "EXECUTE q(NULL)", "EXECUTE q('x')"),
    ("PREPARE q (int) AS SELECT $1", "EXECUTE q", "EXECUTE q()", "EXECUTE q(1, 2)"),
    ("PREPARE q (int, text) AS SELECT $1, $2", "EXECUTE q(-5, 'it''s')", "EXECUTE q(+7, 12)", "EXECUTE q(1)"),
    ("PREPARE q AS SELECT $1::int", "EXECUTE q(5)", "EXECUTE q('5'::int)", "EXECUTE q(CAST('5' AS int))"),
    ("PREPARE q (boolean) AS SELECT $1", "EXECUTE q(true)", "EXECUTE q(false)", "EXECUTE q('t')"),
    ("PREPARE q (double precision) AS SELECT $1", "EXECUTE q(1e3)", "EXECUTE q(.5)", "EXECUTE q('1e-7')"),
    ("PREPARE q (text) AS SELECT $1", "EXECUTE q(1e3)", "EXECUTE q(007)", "EXECUTE q($$a'b$$)", "EXECUTE q(E'a\\nb')"),
    ("PREPARE q (varchar(3)) AS SELECT $1", "EXECUTE q('abcdef')"),
    ("PREPARE q AS SELECT 1", "PREPARE q AS SELECT 2", "EXECUTE q", "DEALLOCATE PREPARE q", "EXECUTE q"),
    ("PREPARE q AS SELECT 1", 'PREPARE "Q" AS SELECT 2', 'EXECUTE "Q"', "EXECUTE Q", "DEALLOCATE ALL", "EXECUTE q"),
    ("PREPARE q AS SELECT 1", "DISCARD ALL", "EXECUTE q", "DEALLOCATE q"),
    ("PREPARE q AS BEGIN",),
    ("PREPARE q AS PREPARE r AS SELECT 1",),
    ("PREPARE q AS EXECUTE q",),
    ("PREPARE q", "PREPARE q AS", "PREPARE q () AS SELECT 1", "PREPARE AS SELECT 1", "EXECUTE", "EXECUTE q(,)"),
    ("PREPARE q (int) AS SELECT $1", "EXECUTE q($1)", "EXECUTE q(1,)", "EXECUTE q(1) 2"),
    ("PREPARE q AS (SELECT 4)", "EXECUTE q", "EXECUTE q; SELECT 2", "PREPARE r AS SELECT 8; EXECUTE r"),
    ("BEGIN", "PREPARE q AS SELECT 1", "ROLLBACK", "EXECUTE q", "BEGIN", "EXECUTE nothing", "EXECUTE q", "ROLLBACK"),
    ('PREPARE "" AS SELECT 1', 'EXECUTE ""', 'DEALLOCATE ""', 'DEALLOCATE PREPARE ""'),
    ("PREPARE q (float8) AS SELECT $1", "EXECUTE q(1e99999999999999999999)", "EXECUTE q(-1e-99999999999999999999)"),
    ("PREPARE q (int) AS SELECT $1", "EXECUTE q('5'::int8)", "EXECUTE q(CAST(5 AS int2))"),
    ("SELECT 1; PREPARE q AS SELECT 2; EXECUTE q; EXECUTE nothing", "EXECUTE q"),
)  # fmt: skip


def _ran(connection: psycopg.Connection[Any], script: tuple[str, ...]) -> list[tuple[object, ...]]:
    """The answers of each statement by a simple query, and by an extended one where the text is one statement."""
    found = list[tuple[object, ...]]()
    for text in script:
        found.append(_answers(connection, text))
        if text.startswith("EXECUTE") and ";" not in text:
            found.append(_answers(connection, text, prepare=True))
    connection.execute("ROLLBACK")
    connection.execute("DISCARD ALL")
    return found


def _answers(connection: psycopg.Connection[Any], text: str, prepare: bool = False) -> tuple[object, ...]:
    found = list[object]()
    with connection.cursor() as cursor:
        try:
            cursor.execute(text.encode(), prepare=prepare, binary=prepare)
        except psycopg.Error as error:
            return (error.sqlstate,)
        while True:
            types = [TEXT if each.type_code == VARCHAR else each.type_code for each in cursor.description or ()]
            found += [cursor.statusmessage, types, cursor.fetchall() if cursor.description else None]
            if not cursor.nextset():
                return tuple(found)


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    with running() as server, connect(server) as connection:
        connection.autocommit = True
        yield connection


@pytest.mark.postgres
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script[0])
def test_answers_are_postgresqls(server: Served, postgres: psycopg.Connection[Any], script: tuple[str, ...]) -> None:
    duck = duckdb.connect()
    server.says(lambda sql, dialect: answered(duck, sql))
    forget_plans(server)
    with server.connect() as connection:
        assert _ran(connection, script) == _ran(postgres, script)


def test_values_are_bound_as_those_of_the_protocol(server: Served) -> None:
    with server.connect() as connection:
        connection.execute(b"PREPARE q (int) AS SELECT a FROM s.a WHERE a > $1 AND b = $2 LIMIT $3")
        assert connection.execute("EXECUTE q(1, 'it''s', 7)").fetchall() == [(1,), (2,), (3,)]
        wanted = "SELECT a FROM s.a WHERE a >  CAST('1' AS int)  AND b =  'it''s'  LIMIT  7 "
        assert server.answers.asked[-1][0] == wanted
        with pytest.raises(psycopg.errors.SyntaxError, match="expected 3 parameters but got 1"):
            connection.execute("EXECUTE q(1)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="nothing is computed"):
            connection.execute("EXECUTE q(1 + 1, 'x', 1)")


def test_empty_names_and_numbers_out_of_range_are_refused(server: Served) -> None:
    with server.connect() as connection:
        connection.execute("PREPARE q AS SELECT 1")
        for text in ('PREPARE "" AS SELECT 1', 'EXECUTE ""', 'DEALLOCATE ""', 'DEALLOCATE PREPARE ""'):
            with pytest.raises(psycopg.errors.SyntaxError, match="zero-length delimited identifier"):
                connection.execute(text.encode())
        for number in ("1e99999999999999999999", "-1e-99999999999999999999"):
            with pytest.raises(psycopg.errors.NumericValueOutOfRange, match="out of range"):
                connection.execute(f"EXECUTE q({number})".encode())
        connection.execute("DEALLOCATE q")


@pytest.mark.parametrize(
    ("type", "value"),
    [("text", "1.5::int"), ("text", "'t'::bool"), ("varchar", "CAST('007' AS int2)"), ("int", "'1'::text"),
     ("date", "'2026-01-01'::timestamp"), ("uuid", "'x'::text"), ("float4", "1::float8")],
)  # fmt: skip
def test_no_value_is_converted(server: Served, type: str, value: str) -> None:
    with server.connect() as connection:
        connection.execute(f"PREPARE q ({type}) AS SELECT a FROM s.a WHERE b = $1".encode())
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="its parameter has another type"):
            connection.execute(f"EXECUTE q({value})".encode())


def test_the_cast_of_an_integer_keeps_its_width(server: Served) -> None:
    with server.connect() as connection:
        connection.execute(b"PREPARE q AS SELECT a FROM s.a WHERE b = $1")
        for cast in ("'99999999999'::int", "CAST('99999999999' AS integer)", "99999::smallint"):
            with pytest.raises(psycopg.DataError, match="invalid input syntax for type int"):
                connection.execute(f"EXECUTE q({cast})".encode())
        for value, bound in (("'5'::int2", "smallint"), ("CAST(5 AS int)", "int"), ("5::bigint", "bigint")):
            connection.execute(f"EXECUTE q({value})".encode())
            assert f"CAST('5' AS {bound})" in server.answers.asked[-1][0]


def test_explain_execute_is_refused(server: Served) -> None:
    with server.connect() as connection:
        connection.execute(b"PREPARE q AS SELECT 1")
        for text in ("EXPLAIN EXECUTE q", "EXPLAIN (COSTS off) VERBOSE EXECUTE q"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="EXPLAIN EXECUTE") as refused:
                connection.execute(text.encode())
            assert "EXPLAIN the statement itself" in (refused.value.diag.message_hint or "")


def test_the_protocol_and_sql_share_the_names(server: Served) -> None:
    with Frames(server) as frames:
        frames.send(b"P", b"mine\0SELECT a FROM s.a WHERE a > $1\0\0\1\0\0\0\x17")
        frames.send(b"S")
        list(frames.until_ready())
        frames.send(b"Q", b"EXECUTE mine(1)\0")
        assert b"".join(kind for kind, _ in frames.until_ready()) == b"TDDDCZ"
        frames.send(b"Q", b"PREPARE mine AS SELECT 1\0")
        assert b"42P05" in dict(frames.until_ready())[b"E"]
        frames.send(b"Q", b"PREPARE other AS SELECT a FROM s.a WHERE a > $1\0")
        list(frames.until_ready())
        for name in (b"other", b"run"):
            frames.send(b"P", b"run\0EXECUTE other(1)\0\0\0") if name == b"run" else None
            frames.send(b"D", b"S" + name + b"\0")
            values = b"\0\1\0\0\0\x012" if name == b"other" else b"\0\0"
            frames.send(b"B", b"\0" + name + b"\0\0\0" + values + b"\0\0")
            frames.send(b"E", b"\0\0\0\0\0")
            frames.send(b"S")
            kinds = b"".join(kind for kind, _ in frames.until_ready())
            assert kinds == (b"1" if name == b"run" else b"") + b"tT2DDDCZ"


def test_a_statement_cannot_run_itself(server: Served) -> None:
    with Frames(server) as frames:
        for text in (b"EXECUTE loop", b"BEGIN", b""):
            frames.send(b"P", b"loop\0" + text + b"\0\0\0")
            frames.send(b"S")
            list(frames.until_ready())
            frames.send(b"Q", b"EXECUTE loop\0")
            assert b"0A000" in dict(frames.until_ready())[b"E"]
            frames.send(b"Q", b"DEALLOCATE loop\0")
            list(frames.until_ready())


def test_prepared_statements_are_bounded(server: Served) -> None:
    with server.connect() as connection:
        for number in range(1000):
            connection.execute(f"PREPARE q{number} AS SELECT {number}".encode())
        with pytest.raises(psycopg.Error, match="at most 1000 prepared statements"):
            connection.execute("PREPARE more AS SELECT 1")
        connection.execute("DEALLOCATE q1")
        connection.execute("PREPARE more AS SELECT 1")
        connection.execute("DEALLOCATE ALL")
        long = "x" * 100_000
        statements = [f"PREPARE q{number} AS SELECT '{long}'" for number in range(50)]
        with pytest.raises(psycopg.Error, match="at most 4 MiB"):
            deque((connection.execute(each.encode()) for each in statements), maxlen=0)


def test_portals_of_execute_are_bounded(server: Served) -> None:
    """Each has its own copy of the values, which only the statement's text has."""
    with Frames(server) as frames:
        for text in (b"BEGIN", b"PREPARE other (text) AS SELECT a FROM s.a WHERE b = $1"):
            frames.send(b"Q", text + b"\0")
            list(frames.until_ready())
        frames.send(b"P", b"run\0EXECUTE other('" + b"x" * 130_000 + b"')\0\0\0")
        for number in range(40):
            frames.send(b"B", b"p%d\0run\0" % number + bytes(6))
        frames.send(b"S")
        found = list(frames.until_ready())
        kinds = b"".join(kind for kind, _ in found)
        assert kinds == b"1" + b"2" * (len(kinds) - 3) + b"EZ"
        assert 5 < kinds.count(b"2") < 20
        assert b"at most 4 MiB" in dict(found)[b"E"]


def test_rows_are_written(tmp_path: Path) -> None:
    """By a prepared INSERT, not in a read-only session, and not in a transaction that is rolled back."""
    with written(tmp_path, (MAY_INSERT,)) as tables, tables.server.connect() as connection:
        connection.execute(b"PREPARE put (bigint, text) AS INSERT INTO shop.plain VALUES ($1, $2), (2, 'x')")
        assert connection.execute("EXECUTE put(1, NULL)").statusmessage == "INSERT 0 2"
        assert connection.execute("EXECUTE put(3, 'c')", binary=True).statusmessage == "INSERT 0 2"
        with connection.transaction(force_rollback=True):
            connection.execute("EXECUTE put(4, 'd')")
        connection.execute("SET default_transaction_read_only = on")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("EXECUTE put(5, 'e')")
        assert sorted(row[0] for row in tables.rows("plain")) == [1, 2, 2, 3]
