"""Debezium's transactions in random histories, in which connectors, tables and ingesters die and begin again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.debezium.test_kafka_transactions import NAMES, Shop, contents, joined, shown, soon
from tests.kafka.test_kafka_crashes import LOOP
from tests.kafka.topics import Run
from tidemark_protocol.plan import codec
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka import source as kafka_source
from tidemark_replica.storage.kafka.stop import NOT_AUTHORIZED
from tidemark_replica.storage.kafka.transactions import log, undecided

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
__all__ = ["soon"]


class Killed(BaseException):
    """The process dies."""


def kill_after(run: Run, appends: int) -> None:
    """The ingester dies after so many writes of shards."""
    append, left = run.one._append, [appends]

    def killing(*given: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        append(*given)

    run.one._append = killing  # type: ignore[method-assign]


def stop_soon(run: Run, name: str) -> None:
    """The table stops when it is read next, for a reason that another process does not find."""

    def refused(*_: Any) -> None:
        raise TableStopped(NOT_AUTHORIZED, "the topic may not be read for a moment")

    run.source._tables[name].read_ahead = refused


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 20))])
def test_oracle_random_transactions(kafka: Broker, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions over partitions and tables, which reach each partition at another time; the connector dies and
    begins again somewhat earlier, the ingester dies, memory is small; tables stop and go on, are removed and come
    back. At each tick the tables are those of one state upstream, and not an older one than before."""
    draw = random.Random(seed)
    monkeypatch.setattr(log, "BEFORE_RECORDS", 200)
    if draw.random() < 0.5:
        monkeypatch.setattr(kafka_source, "AHEAD_BYTES", 3_000)
    names = NAMES[: draw.randrange(1, len(NAMES) + 1)]
    shop = Shop(kafka, draw.randrange(1, 4), names=NAMES, schemas=draw.random() < 0.3)
    bytes_max = draw.choice([2_000, 1 << 20])
    spec = shop.spec(*names, max_bytes_per_tick=bytes_max)
    run, term = Run(tmp_path, spec), 1
    joined(run)
    shop.some_join = True
    for _ in range(20):
        for _ in range(draw.randrange(4)):
            shop.upstream.commit_random(draw)
        shop.connector.queue(draw.randrange(1, 40))
        shop.connector.deliver_some(draw)
        if draw.random() < 0.25:
            shop.connector.restart_somewhere(draw)
        if draw.random() < 0.25:
            kill_after(run, draw.randrange(4))
        if draw.random() < 0.1:
            stop_soon(run, draw.choice([table.name for table in run.spec.tables]))
        try:
            shop.tick(run, draw.randrange(3))
            died = draw.random() < 0.15
        except Killed:
            died = True
        if died:
            run.close()
            names, term = draw.choice([names, NAMES[:1], NAMES]), term + 1
            shop.connector.send(0)  # what ended before a table joins has reached it
            run = Run(tmp_path, shop.spec(*names, max_bytes_per_tick=bytes_max), term)
            shop.check(run)
            joined(run)
    run.close()  # perhaps it would die soon
    run = Run(tmp_path, shop.spec(*names, max_bytes_per_tick=bytes_max), term + 1)
    joined(run)
    end_of_history(shop)
    shop.until_last(run)
    run.close()


def end_of_history(shop: Shop) -> None:
    """An event for each partition: nothing is undecided any more."""
    shop.connector.send_all()
    for _ in range(2):
        shop.commit(*((name, id, "last") for name in NAMES for id in range(3)))
        shop.connector.send_all()


@pytest.mark.parametrize("seed", [*range(1), *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 18))])
def test_oracle_random_refusals(kafka: Broker, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker refuses batches of the connector, which begins again there or before, while it takes others: at last
    the tables are as they are upstream, or the source says which events came behind later ones."""
    draw = random.Random(seed)
    monkeypatch.setattr(undecided, "BYTES_MAX", draw.choice([0, 150, 1 << 20]))
    shop = Shop(kafka, draw.randrange(1, 4))
    run, term = Run(tmp_path, shop.spec()), 1
    joined(run)
    for _ in range(10):
        for _ in range(draw.randrange(1, 4)):
            shop.upstream.commit_random(draw)
        shop.connector.queue(draw.randrange(1, 60))
        shop.connector.deliver_some(draw)
        fails = draw.random() < 0.15
        if fails:
            shop.connector.refuse_some(draw)
            shop.connector.deliver_some(draw)
            run.tick(draw.randrange(3))
        if fails or draw.random() < 0.25:
            shop.connector.restart_somewhere(draw)
        run.tick(draw.randrange(3))
        if draw.random() < 0.1:
            run.close()
            run, term = Run(tmp_path, shop.spec(), term + 1), term + 1
    end_of_history(shop)
    last = shown(shop.upstream.states[-1], NAMES)
    held = "TransactionIncomplete", "TransactionUnclear"
    run.until(lambda: contents(tmp_path, NAMES) == last or run.source.warning().startswith(held))
    run.close()


@pytest.mark.parametrize(
    ("seed", "kills"), [(2, 2), *(pytest.param(n, 5, marks=pytest.mark.slow) for n in range(20, 24))]
)
def test_crash_sigkill_while_transactions_come(kafka: Broker, tmp_path: Path, seed: int, kills: int) -> None:
    """The ingesting process is killed at any point of a tick: what its bindings have are whole transactions."""
    draw, shop = random.Random(seed), Shop(kafka)
    spec = shop.spec(max_bytes_per_tick=2_000)
    (tmp_path / "spec").write_bytes(codec.encode(spec))
    with Run(tmp_path, spec) as run:
        joined(run)
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path), str(tmp_path / "spec")],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        for _ in range(draw.randrange(2, 8)):
            assert process.stdout.readline().startswith(b"all before")
            shop.upstream.commit_random(draw)
            shop.connector.queue(draw.randrange(1, 40))
            shop.connector.deliver_some(draw)
        time.sleep(draw.uniform(0.0, 0.3))  # not a wait for anything: the moment of death
        process.send_signal(signal.SIGKILL)
        process.wait()
        if draw.random() < 0.3:
            shop.connector.restart_somewhere(draw)
        with Run(tmp_path, spec) as run:
            shop.check(run)
    with Run(tmp_path, spec, term=2) as run:
        end_of_history(shop)
        shop.until_last(run)
