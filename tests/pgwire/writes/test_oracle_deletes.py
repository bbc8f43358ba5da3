"""DELETE, UPDATE and INSERT ... ON CONFLICT of random keys: the number of a statement and the rows that are left are a
real PostgreSQL's. A statement is refused where a key is twice in it, and an INSERT where it is NULL."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.dialects.postgres import running
from tests.pgwire.served import Served
from tests.pgwire.test_oracle_values import connect
from tests.pgwire.writes.test_deletes import MAY_WRITE
from tests.pgwire.writes.written import written

pytestmark = pytest.mark.postgres
SEED, COUNT, TRANSACTIONS = 20261127, 150, 60
KEYS = ("1", "2", "3", "'2'", "3::bigint", "NULL", "4", "'04'")
TEXTS = ("'x'", "'y'", "'Y'", "''", "'x '", "E'\\x78'", "NULL")


def test_random_statements(tmp_path: Path) -> None:
    choice, done = random.Random(SEED), dict[str, int]()
    with (
        written(tmp_path, MAY_WRITE) as tables,
        running() as server,
        connect(server) as postgres,
        _connected(tables.server) as tidemark,
    ):
        postgres.execute('CREATE TEMP TABLE pairs (a bigint, "B" text, n bigint, PRIMARY KEY (a, "B"))')
        for number in range(COUNT):
            text = _statement(choice)
            try:
                tag = tidemark.execute(text.replace("pairs", "shop.pairs").encode()).statusmessage
            except psycopg.Error:
                assert text.startswith("INSERT") or "'04'" in text, text
                continue  # a refusal: a key is NULL, or twice in the statement
            assert postgres.execute(text.encode()).statusmessage == tag, (number, text)
            wanted = postgres.execute('SELECT a, "B", n FROM pairs').fetchall()
            assert sorted(tables.rows("pairs"), key=repr) == sorted(wanted, key=repr), (number, text)
            done[(tag or "").split()[0]] = done.get((tag or "").split()[0], 0) + 1
    assert min(done["INSERT"], done["DELETE"], done["UPDATE"]) > COUNT / 10


@pytest.mark.parametrize("names", [("wide",), ("wide", "deep")])
def test_random_transactions_leave_what_postgresql_leaves(tmp_path: Path, names: tuple[str, ...]) -> None:
    """The transactions are of inserts, upserts, updates, deletes and savepoints, of one table and of two. A transaction
    is refused at its end alone where a DELETE or UPDATE has said more rows than there were, or where a key is there
    already. No time has half of one."""
    choice, committed, mixed, both = random.Random(SEED), 0, 0, 0
    states = [tuple([] for _ in names)]
    with (
        written(tmp_path, MAY_WRITE) as tables,
        running() as server,
        connect(server) as postgres,
        _connected(tables.server) as tidemark,
    ):
        for name in names:
            postgres.execute(f"CREATE TEMP TABLE {name} (id bigint PRIMARY KEY, x text, y bigint)".encode())
        for number in range(TRANSACTIONS):
            statements = ["BEGIN", *(text.replace("wide", choice.choice(names)) for text in _transaction(choice))]
            tags = [_tag(tidemark, _of_source(text)) for text in statements]
            try:
                wanted = [_tag(postgres, text) for text in statements]
            except psycopg.errors.UniqueViolation:
                postgres.execute("ROLLBACK")
                with pytest.raises((psycopg.errors.UniqueViolation, psycopg.errors.NoDataFound)):
                    tidemark.execute("COMMIT")
                continue
            refused = _refused(tidemark)
            if refused:
                assert tags != wanted, (number, statements, refused)
                postgres.execute("ROLLBACK")
            else:
                assert _without_rolled_back(statements, tags) == _without_rolled_back(statements, wanted), (
                    number,
                    statements,
                )
                postgres.execute("COMMIT")
                committed, mixed = committed + 1, mixed + (len({text.split()[0] for text in statements}) > 2)
                both += all(any(f" {name} " in text for text in statements) for name in names)
            queries = [f"SELECT id, x, y FROM {name} ORDER BY id" for name in names]
            left = tuple(postgres.execute(query.encode()).fetchall() for query in queries)
            assert tuple(sorted(tables.rows(name)) for name in names) == left, (number, statements)
            states.append(left)
        at = 0
        for time in range(tables.writer.now - 5000, tables.writer.now, 50):
            found = tuple(sorted(tables.rows_at(name, time)) for name in names)
            at = next(n for n in range(at, len(states)) if states[n] == found)
    assert mixed > TRANSACTIONS / 6, (committed, mixed)
    assert both > TRANSACTIONS / 6


def _of_source(text: str) -> str:
    return text.replace("wide", "shop.wide").replace("deep", "shop.deep")


def _tag(connection: psycopg.Connection[Any], text: str) -> str | None:
    return connection.execute(text.encode()).statusmessage


def _refused(connection: psycopg.Connection[Any]) -> str:
    """The reason why the transaction is refused at its end; empty: it is done."""
    try:
        connection.execute("COMMIT")
    except (psycopg.errors.UniqueViolation, psycopg.errors.NoDataFound) as error:
        return str(error)
    return ""


def _without_rolled_back(statements: list[str], tags: list[str | None]) -> list[str | None]:
    """Without those that a savepoint took back: the number of such a DELETE was never checked."""
    if "SAVEPOINT s" not in statements:
        return tags
    begin, end = statements.index("SAVEPOINT s"), statements.index("ROLLBACK TO SAVEPOINT s")
    return tags[:begin] + tags[end:]


def _transaction(choice: random.Random) -> list[str]:
    def value(name: str) -> str:
        return choice.choice(("NULL", f"'{choice.random()}'" if name == "x" else str(choice.randrange(99))))

    def changes(excluded: bool) -> str:
        names = choice.choice((("x",), ("y",), ("y", "x")))
        return ", ".join(f"{name} = {f'EXCLUDED.{name}' if excluded else value(name)}" for name in names)

    def statement(may_fail: bool = True) -> str:
        id = choice.randrange(8)
        rows = f"INSERT INTO wide VALUES ({id}, {value('x')}, {value('y')})"
        upsert = f"{rows} ON CONFLICT (id) DO UPDATE SET {changes(excluded=True)}"
        return choice.choice(
            (
                f"DELETE FROM wide WHERE id = {id}",
                f"UPDATE wide SET {changes(excluded=False)} WHERE id IN ({id}, NULL)",
                rows if may_fail else upsert,
                upsert,
                upsert,
            )
        )

    found = [statement() for _ in range(choice.randrange(1, 5))]
    if choice.random() < 0.3:
        found += ["SAVEPOINT s", *(statement(may_fail=False) for _ in range(2)), "ROLLBACK TO SAVEPOINT s", statement()]
    return found


def _connected(server: Served) -> psycopg.Connection[Any]:
    return server.connect()


def _statement(choice: random.Random) -> str:
    def values(kinds: tuple[str, ...]) -> str:
        return ", ".join(choice.choice(kinds) for _ in range(choice.randrange(1, 3)))

    def pair() -> str:
        return f"({choice.choice(KEYS)}, {choice.choice(TEXTS)})"

    if choice.random() < 0.5:
        rows = ", ".join(f"{pair()[:-1]}, {choice.randrange(9)})" for _ in range(choice.randrange(1, 4)))
        key = choice.choice(('(a, "B")', '("B", a)'))
        return f"INSERT INTO pairs VALUES {rows} ON CONFLICT {key} DO UPDATE SET n = EXCLUDED.n"
    table, changes = choice.choice((("DELETE FROM pairs AS p ", ""), ("UPDATE pairs AS p ", "SET n = {} ")))
    return f"{table}{changes.format(choice.choice((choice.randrange(9), 'NULL', 'DEFAULT')))}" + choice.choice(
        (
            f'WHERE a = {choice.choice(KEYS)} AND "B" = {choice.choice(TEXTS)}',
            f'WHERE (p."B" IN ({values(TEXTS)}) AND a IN ({values(KEYS)}))',
            f'WHERE (a, "B") IN ({pair()}, {pair()})',
            f'WHERE (a, "B") = {pair()}',
            f'WHERE (a) IN (VALUES ({choice.choice(KEYS[:3])})) AND "B" IN ({values(TEXTS)})',
        )
    )
