"""DELETE and INSERT ... ON CONFLICT of random keys: the number of a statement and the rows that are left are a real
PostgreSQL's. No DELETE is refused, and an INSERT where a key is NULL or twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.dialects.postgres import running
from tests.pgwire.served import Served
from tests.pgwire.test_deletes import MAY_WRITE
from tests.pgwire.test_oracle_values import connect
from tests.pgwire.written import written

pytestmark = pytest.mark.postgres
SEED, COUNT = 20261127, 150
KEYS = ("1", "2", "3", "'2'", "3::bigint", "NULL", "4")
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
                assert text.startswith("INSERT"), text
                continue  # a refusal: a key is NULL, or twice in the statement
            assert postgres.execute(text.encode()).statusmessage == tag, (number, text)
            wanted = postgres.execute('SELECT a, "B", n FROM pairs').fetchall()
            assert sorted(tables.rows("pairs"), key=repr) == sorted(wanted, key=repr), (number, text)
            done[(tag or "").split()[0]] = done.get((tag or "").split()[0], 0) + 1
    assert min(done["INSERT"], done["DELETE"]) > COUNT / 10


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
    return "DELETE FROM pairs " + choice.choice(
        (
            f'WHERE a = {choice.choice(KEYS)} AND "B" = {choice.choice(TEXTS)}',
            f'AS p WHERE (p."B" IN ({values(TEXTS)}) AND a IN ({values(KEYS)}))',
            f'WHERE (a, "B") IN ({pair()}, {pair()})',
            f'WHERE (a, "B") = {pair()}',
            f'WHERE (a) IN (VALUES ({choice.choice(KEYS[:3])})) AND "B" IN ({values(TEXTS)})',
        )
    )
