"""Ingesting processes are killed with SIGKILL, wherever they are, and the database restarts: the shards have no state
that the upstream did not have between two transactions, and at the end each row is there once."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import pytest

from tests.postgres.databases import (
    Database,
    History,
    bound_until,
    check,
    ingester,
    source_of,
    tick,
    tick_until_followed,
)
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import PostgresSource
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.ingester import Ingester

pytestmark = [pytest.mark.postgres, pytest.mark.broad]
ATTEMPTS = 240
"""At half a second: a busy server notices late that the process of a slot is gone."""


@contextmanager
def ingesting_process(root: Path, spec: PostgresSource, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end of the block. `more`: arguments."""
    command = [sys.executable, "-m", "tests.postgres.ingesting_process", str(root), codec.encode(spec).decode(), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def kill_again_and_again(database: Database, root: Path, seed: int, kills: int) -> None:
    draw = random.Random(seed)
    database.run("insert into a select g, 'p', g, repeat('z', 500), now(), true from generate_series(100, 20000) g")
    history = History(database.server, database.name, seed)
    spec = database.spec()
    with history.going_on(0.02):
        for number in range(kills):
            with ingesting_process(root, spec) as process:
                if number % 3 == 2:
                    first_line(process)
                    sleep(draw.random() * 0.6)
                else:  # also before its first tick
                    sleep(draw.random() * 3.0)
    finish(root, spec)
    check(root, history.states)


def finish(root: Path, spec: PostgresSource) -> None:
    """Ingests the rest, by a last process."""
    for attempt in range(ATTEMPTS):
        one = ingester(root, spec)
        try:
            one.recover()
            last = bound_until(root)
            tick_until_followed(one, last + 1000)
            sleep(0.5)
            tick(one, last + 9000)
            assert not source_of(one).stop_reasons()
            return
        except IngestionError:  # the slot of a process that was killed just now
            assert attempt < ATTEMPTS - 1
            sleep(0.5)
        finally:
            source_of(one).close()


def test_crash_kills(database: Database, tmp_path: Path) -> None:
    kill_again_and_again(database, tmp_path, 1, 8)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_crash_many_kills(database: Database, tmp_path: Path, seed: int) -> None:
    kill_again_and_again(database, tmp_path, 100 + seed, 50)


def test_crash_the_database_restarts(database: Database, tmp_path: Path) -> None:
    """The server has crashed: the source begins its connections anew, and goes on where it was."""
    history = History(database.server, database.name, 5)
    spec = database.spec()
    one: Ingester | None = None
    for round in range(3):
        with history.going_on():
            for time in range(1000 * (1 + round), 1000 * (1 + round) + 500, 100):
                one = ticked(tmp_path, spec, one, time)
                sleep(0.05)
        database.server.stop()
        database.server.start()
        history.reconnect()
    finish(tmp_path, spec)
    check(tmp_path, history.states)


def ticked(root: Path, spec: PostgresSource, one: Ingester | None, time: int) -> Ingester | None:
    """The ingester after the tick; None where it failed, and another one is to go on."""
    if one is None:
        one = ingester(root, spec)
        one.recover()
    try:
        one.tick(time)  # type: ignore[arg-type]
        return one
    except IngestionError:
        source_of(one).close()
        return None
