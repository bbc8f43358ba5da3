"""SIGKILL of the database and of the ingesting process, at random moments, one of them or both: 120 in three runs.

At the end each row is there once, and no state was ever bound that the upstream did not have between two transactions.
"""

from __future__ import annotations

import random
from pathlib import Path
from time import monotonic, sleep

import psycopg
import pytest

from tests.dialects.postgres import Postgres
from tests.postgres.databases import Database, History, check
from tests.postgres.test_crash_processes import finish, ingesting_process

KILLS, CHECKED_TIMES = 40, 200

pytestmark = pytest.mark.postgres


class InterruptedHistory(History):
    """Goes on after the database was killed. A transaction whose commit was not answered was committed, or was not:
    the contents after the restart tell."""

    def step(self) -> None:
        try:
            super().step()
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self._begin_anew()

    def close(self) -> None:
        self.step()  # connections of before a kill
        super().close()

    def _begin_anew(self) -> None:
        for connection in (*self._open, self._reader):
            connection.close()
        self._open.clear()
        for attempt in range(600):
            try:
                self.reconnect()
                self.states.append(self.now())
                return
            except psycopg.OperationalError:
                assert attempt < 599
                sleep(0.1)


def kill(server: Postgres) -> None:
    """SIGKILL of the server's first process; the others end once they notice. Then it is started again."""
    server.kill()
    server.start()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_crash_kills_of_database_and_ingester(database: Database, tmp_path: Path, seed: int) -> None:
    draw, history = random.Random(seed), InterruptedHistory(database.server, database.name, 200 + seed)
    spec, kills = database.spec(), {"database": 0, "ingester": 0}
    with history.going_on(0.02):
        while sum(kills.values()) < KILLS:
            with ingesting_process(tmp_path, spec):
                until = monotonic() + draw.choice((1.0, 4.0, 8.0)) * draw.random()
                while sum(kills.values()) < KILLS and monotonic() < until:
                    sleep(draw.random() * 2.0)
                    if draw.random() < 0.4:
                        kill(database.server)
                        kills["database"] += 1
            kills["ingester"] += 1
    finish(tmp_path, spec)
    assert min(kills.values()) > KILLS // 6, kills
    check(tmp_path, history.states, CHECKED_TIMES)
