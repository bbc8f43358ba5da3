"""A client's bytes cost no more than their length, and the memory of a session has a bound."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
import signal
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import tidemark_pgwire
from tests.pgwire.frames import Frames
from tests.pgwire.served import Served
from tests.waiting import BOUND
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages.backend import TEXT
from tidemark_pgwire.session.settings import SessionSettings
from tidemark_pgwire.session.transaction import MAX_SAVEPOINTS, SessionTransaction
from tidemark_pgwire.statements.commands import parse
from tidemark_pgwire.statements.inserts import Write
from tidemark_pgwire.statements.lexer import MAX_CHARACTERS, POSTGRES, SPARK, Statement, split
from tidemark_pgwire.values.parameters import decoded
from tidemark_pgwire.writes.body import LONG

CPU_SECONDS = 2.0
SIZE = 30_000
BEGINNINGS = ("", "1", "-", "a", "'", '"', "(", "show a", "-c a=", "--a=", "e'", "$", "/*", ".", "1e", "2024-", "\\")
REPEATED = (" ", "1", "a", "'", '"', "''", "\\", "\\\\", "(", ".", "-", "a ", " 1", "/*", "é", "\n", "_", "$", "e1")


def patterns() -> list[Any]:
    """The regular expressions of the package's modules."""
    found = []
    for module in pkgutil.walk_packages(tidemark_pgwire.__path__, "tidemark_pgwire."):
        if not module.name.endswith("__main__"):
            names = vars(importlib.import_module(module.name))
            found += [
                pytest.param(value, id=f"{module.name.partition('.')[2]}.{name}")
                for name, value in names.items()
                if isinstance(value, re.Pattern)
            ]
    return found


@contextmanager
def cpu_bound(seconds: float = CPU_SECONDS) -> Iterator[None]:
    """`re` looks at signals while it matches."""

    def late(*_: object) -> None:
        pytest.fail(f"more than {seconds} s of CPU")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_there_are_patterns() -> None:
    assert len(patterns()) > 16


@pytest.mark.parametrize("pattern", patterns())
def test_a_pattern_takes_time_by_the_length_of_its_text(pattern: re.Pattern[Any]) -> None:
    with cpu_bound(5 * CPU_SECONDS):
        for beginning in BEGINNINGS:
            for repeated in REPEATED:
                text = beginning + repeated * (SIZE // len(repeated)) + "!"
                given = text if isinstance(pattern.pattern, str) else text.encode()
                pattern.match(given)
                pattern.fullmatch(given)


@pytest.mark.parametrize("oid", [16, 20, 23, 700, 701, 1082, 1114, 1184, 1700, 2950])
@pytest.mark.parametrize(
    "text", ["1" * 1_000_000 + "x", " " * 1_000_000 + "x", "1." + "0" * 1_000_000, "'" * 1_000_000]
)
def test_a_long_value_is_refused_at_once(oid: int, text: str) -> None:
    with cpu_bound(), pytest.raises(WireError):
        decoded(oid, TEXT, text.encode())


@pytest.mark.parametrize("name", ["statement_timeout", "timezone", "search_path", "tidemark.as_of", "dialect"])
def test_a_long_setting_is_refused_at_once(name: str) -> None:
    with cpu_bound(), pytest.raises(WireError):
        SessionSettings("anne", {name: "1" + " " * 1_000_000 + "x"})
    with cpu_bound(), pytest.raises(WireError):
        SessionSettings("anne", {"statement_timeout": "1" + " " * 1000 + "x"})


@pytest.mark.parametrize("dialect", [POSTGRES, SPARK])
def test_a_long_statement_is_refused_before_it_is_looked_at(dialect: str) -> None:
    with cpu_bound(0.5), pytest.raises(WireError, match="characters, and at most") as failed:
        split("(" * 1_000_000, dialect)
    assert failed.value.sqlstate == "54000"
    assert len(split("(" * MAX_CHARACTERS, dialect)) == 1


_KEYS = ",".join("1" * 30_000)


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("(" * 120_000, "42601"),
        ("(" * 60_000 + "id = 1" + ")" * 60_000, "54001"),
        ("(" * 17 + f"id IN ({_KEYS})" + ")" * 17, "54001"),
        (f"id IN ({'(' * 60_000}1{')' * 60_000})", "0A000"),
        (" AND ".join(f"a{n} IN ({_KEYS[:599]})" for n in range(9)), "54000"),
        (f"a IN ({_KEYS[:599]}) AND b IN ({_KEYS[:599]})" + "".join(f" AND c{n} = 1" for n in range(5000)), "54000"),
    ],
)
def test_a_deep_or_wide_delete_is_refused_at_once(server: Served, text: str, sqlstate: str) -> None:
    text = f"DELETE FROM t WHERE {text}"
    with cpu_bound(5 * CPU_SECONDS), pytest.raises(WireError) as failed:
        parse(split(text, POSTGRES)[0])
    assert failed.value.sqlstate == sqlstate
    with server.connect() as connection:
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(text.encode())
        assert refused.value.sqlstate == sqlstate
        assert connection.execute("SELECT 1 AS one").fetchall()


def test_parentheses_around_many_keys_cost_their_length() -> None:
    with cpu_bound(5 * CPU_SECONDS):
        made = parse(split("DELETE FROM t WHERE " + "(" * 16 + f"id IN ({_KEYS})" + ")" * 16, POSTGRES)[0])
    assert isinstance(made, Write)
    assert len(made.rows) == 30_000


@pytest.mark.parametrize("protocol", ["session", "extended"])
def test_while_a_long_statement_is_read_other_sessions_go_on(
    server: Served, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """And it can be canceled."""
    reading, released = threading.Event(), threading.Event()

    def held(text: str, dialect: str) -> list[Statement]:
        if len(text) > LONG:
            reading.set()
            assert released.wait(BOUND)
        return split(text, dialect)

    monkeypatch.setattr(f"tidemark_pgwire.session.{protocol}.split", held)
    text = "SELECT a FROM s.a WHERE a = 1 -- " + "x" * LONG
    with server.connect() as slow, server.connect() as other, ThreadPoolExecutor(1) as threads:
        values = None if protocol == "session" else ()
        running = threads.submit(lambda: slow.execute(text.encode(), values, prepare=values is not None))
        try:
            assert reading.wait(BOUND)
            assert other.execute("SELECT a FROM s.a").fetchall() == [(1,), (2,), (3,)]
            slow.cancel_safe(timeout=BOUND)
            with pytest.raises(psycopg.errors.QueryCanceled):
                running.result(BOUND)
        finally:
            released.set()
        assert slow.execute(text.encode(), values, prepare=values is not None).fetchall() == [(1,), (2,), (3,)]


def test_long_statements_are_refused_in_both_protocols(server: Served) -> None:
    text = b"SELECT '" + b"x" * MAX_CHARACTERS + b"'\0"
    with Frames(server) as frames:
        frames.send(b"Q", text)
        assert b"C54000" in dict(frames.until_ready())[b"E"]
        frames.send(b"P", b"\0" + text + b"\0\0")
        frames.send(b"S")
        assert b"C54000" in dict(frames.until_ready())[b"E"]


def test_what_a_session_keeps_has_a_bound(server: Served) -> None:
    """13 bytes make 65,535 types."""
    with Frames(server) as frames:
        for number in range(20):
            frames.send(b"P", b"s%d\0SELECT $65535\0\0\0" % number)
            frames.send(b"S")
            told = dict(frames.until_ready())
            if b"E" in told:
                break
        assert 0 < number < 10
        assert b"C54000" in told[b"E"]
        frames.send(b"Q", b"DEALLOCATE ALL\0")
        assert b"C" in dict(frames.until_ready())
        frames.send(b"P", b"\0SELECT a FROM s.a WHERE a = $1\0\0\0")
        frames.send(b"S")
        list(frames.until_ready())
        value = b"x" * 500_000
        frames.send(b"Q", b"BEGIN\0")
        list(frames.until_ready())
        for number in range(20):
            frames.send(b"B", b"p%d\0\0\0\0\0\1" % number + struct.pack("!I", len(value)) + value + b"\0\0")
            frames.send(b"S")
            told = dict(frames.until_ready())
            if b"E" in told:
                break
            frames.send(b"P", b"\0SELECT a FROM s.a WHERE a = $1\0\0\0")
        assert b"C54000" in told[b"E"]


@pytest.mark.parametrize("sql", ["SAVEPOINT {}", "DECLARE {} CURSOR FOR SELECT 1", "DEALLOCATE {}", "SET {} = 1"])
def test_a_long_name_is_refused(server: Served, sql: str) -> None:
    with server.connect() as connection, pytest.raises(psycopg.errors.NameTooLong), connection.transaction():
        connection.execute(sql.format("n" * 300))


def test_savepoints_have_a_bound() -> None:
    """One that is set again and again, as pgjdbc does before each statement, is one."""
    transaction = SessionTransaction()
    transaction.begin()
    for _ in range(10_000):
        transaction.savepoint("again")
    transaction.release("again")
    asyncio.run(transaction.rollback_to("again"))
    for number in range(MAX_SAVEPOINTS - 1):
        transaction.savepoint(f"s{number}")
    with pytest.raises(WireError, match="at most"):
        transaction.savepoint("one more")
