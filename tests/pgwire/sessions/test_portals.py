"""Portals and cursors that end before their last row, and rows that no longer fit their description."""

from __future__ import annotations

import struct
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from tests.controller.harness import at
from tests.pgwire.frames import Frames
from tests.pgwire.served import ONE, Rows, Served, served
from tests.pgwire.test_clients import tell, updates
from tests.waiting import until
from tidemark_protocol.types import BIGINT, STRING, Column

INTEGERS = Rows((Column("a", BIGINT), Column("b", BIGINT)), pa.table({"a": [1], "b": [2]}))
SWAPPED = Rows((Column("b", BIGINT), Column("a", BIGINT)), pa.table({"b": [2], "a": [1]}))
TEXTS = Rows((Column("a", STRING), Column("b", BIGINT)), pa.table({"a": ["1"], "b": [2]}))
BAD = Rows(
    (Column("a", STRING),), pa.table({"a": pa.array([f"row {n}" for n in range(1500)] + ["nul \0"] + ["last"] * 1500)})
)


def test_a_fetch_that_was_canceled_is_not_the_end_of_its_cursor(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE s.a AS OF 300")
        tell(server, 0, at(400), updates((7, 300, 1)))
        assert connection.execute("FETCH 10 FROM c").fetchall() == [(300, 1, 7)]
        connection.execute("SAVEPOINT s")
        connection.execute("SET statement_timeout = '100ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("FETCH 10 FROM c")
        connection.execute("ROLLBACK TO s")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be run"):
            connection.execute("FETCH 10 FROM c")
        connection.execute("ROLLBACK TO s")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be run"):
            connection.execute("MOVE 10 FROM c")
        connection.execute("ROLLBACK")
        until(lambda: server.running.clients.subscribes == 0)


def test_rows_that_cannot_be_encoded_are_never_left_out(server: Served) -> None:
    """A slice holds NUL: the next FETCH gives an error too, and not the rows after the slice."""
    server.says(lambda sql, dialect: BAD)
    with server.connect() as connection:
        connection.execute("DECLARE c CURSOR WITH HOLD FOR SELECT a FROM s.a WHERE a > 'x'")
        found, failed = 0, 0
        for _ in range(40):
            try:
                found += len(connection.execute("FETCH 100 FROM c").fetchall())
            except psycopg.errors.CharacterNotInRepertoire:
                failed += 1
            except psycopg.errors.ObjectNotInPrerequisiteState:
                break
        else:
            pytest.fail("the cursor came to an end")
        assert (found <= 1500, failed) == (True, 1)


def test_a_portal_that_was_canceled_is_not_complete(tmp_path: Path) -> None:
    with served(tmp_path) as server, Frames(server) as frames:
        frames.send(b"Q", b"BEGIN; SAVEPOINT s\0")
        list(frames.until_ready())
        frames.send(b"P", b"\0SUBSCRIBE s.a AS OF 300\0\0\0")
        frames.send(b"B", b"p\0\0\0\0\0\0\0\0")
        frames.send(b"E", b"p\0\0\0\0\1")
        frames.send(b"S")
        tell(server, 0, at(400), updates((7, 300, 1)))
        assert b"".join(kind for kind, _ in frames.until_ready()) == b"12DsZ"
        frames.send(b"Q", b"SET statement_timeout = 100\0")
        list(frames.until_ready())
        for expected in (b"57014", b"55000"):
            frames.send(b"E", b"p\0\0\0\0\1")
            frames.send(b"S")
            told = dict(frames.until_ready())
            assert expected in told[b"E"]
            frames.send(b"Q", b"ROLLBACK TO s\0")
            list(frames.until_ready())


@pytest.mark.parametrize("changed", [SWAPPED, TEXTS], ids=["names", "types"])
def test_rows_that_do_not_fit_their_description_are_refused(server: Served, changed: Rows) -> None:
    """The view has changed: drivers know the columns by an earlier Describe, and prepare anew by the error."""
    with Frames(server) as frames:
        server.says(lambda sql, dialect: INTEGERS)
        frames.send(b"P", b"s\0SELECT a.*, 1 + a FROM s.a\0\0\0")
        frames.send(b"D", b"Ss\0")
        for answer, expected in ((INTEGERS, b"2DCZ"), (changed, b"2EZ")):
            server.says(lambda sql, dialect, answer=answer: answer)  # type: ignore[misc]
            frames.send(b"B", b"\0s\0\0\0\0\0\0\0")
            frames.send(b"E", b"\0\0\0\0\0")
            frames.send(b"S")
            told = list(frames.until_ready())
            assert b"".join(kind for kind, _ in told)[-len(expected) :] == expected
        assert b"0A000\0Mcached plan must not change result type\0" in dict(told)[b"E"]
        assert b"RRevalidateCachedQuery\0" in dict(told)[b"E"]
        frames.send(b"B", b"\0s\0\0\0\0\0\0\0")
        frames.send(b"D", b"P\0")
        frames.send(b"E", b"\0\0\0\0\0")
        frames.send(b"S")
        assert b"".join(kind for kind, _ in frames.until_ready()) == b"2TDCZ"


def test_a_type_that_a_parameter_decides_is_the_described_one(server: Served) -> None:
    text = Rows((Column("a", STRING),), pa.table({"a": ["x"]}))
    server.says(lambda sql, dialect: ONE if "NULL" in sql else text)
    with Frames(server) as frames:
        frames.send(b"P", b"s\0SELECT coalesce($1, 1) AS a FROM s.a\0\0\0")
        frames.send(b"D", b"Ss\0")
        frames.send(b"B", b"\0s\0\0\0\0\1\0\0\0\1x\0\0")
        frames.send(b"E", b"\0\0\0\0\0")
        frames.send(b"S")
        assert b"".join(kind for kind, _ in frames.until_ready()) == b"1tT2EZ"


def test_a_name_that_a_parameter_makes_may_change(server: Served) -> None:
    """Spark names `a + $1` by the value."""

    def named(sql: str, dialect: str) -> Rows:
        name = "(a + NULL)" if "NULL" in sql else "(a + 7)"
        return Rows((Column(name, BIGINT),), pa.table({name: [8]}))

    server.says(named)
    with Frames(server, dialect="spark") as frames:
        frames.send(b"P", b"s\0SELECT a + $1 FROM s.a\0\0\1\0\0\0\x17")
        frames.send(b"D", b"Ss\0")
        frames.send(b"B", b"\0s\0\0\1\0\1\0\1\0\0\0\4" + struct.pack("!i", 7) + b"\0\0")
        frames.send(b"E", b"\0\0\0\0\0")
        frames.send(b"S")
        assert b"".join(kind for kind, _ in frames.until_ready()) == b"1tT2DCZ"
