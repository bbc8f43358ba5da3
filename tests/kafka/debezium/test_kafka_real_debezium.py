"""Debezium's connector in Kafka Connect writes what happens in a PostgreSQL database, and the tables are that database,
at each time as it was between two transactions, while Connect, the broker and the ingester are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.postgres import Postgres
from tests.kafka.broker import Broker, broker
from tests.kafka.connect import Worker, connect
from tests.kafka.debezium.debezium_shop import (
    NAMES,
    PREFIX,
    SCHEMA,
    TRANSACTIONS,
    ShopHistory,
    connector,
    create_topics,
    server_on_tcp,
    source,
)
from tests.kafka.debezium.test_kafka_transactions import is_joined, is_settled
from tests.kafka.test_kafka_crashes import LOOP
from tests.kafka.topics import Run, consumed
from tests.postgres.databases import Database, Row, create_database, ingested_rows, row_key
from tests.replica.process import wait_until
from tests.waiting import BOUND
from tidemark_persist import DIFF, ERROR, TIME, open_shard, read_part
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.kafka import KafkaSource

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.broad]
UNCOMPACTED = LOOP.replace("    run.one.compact_remap()\n", "    time.sleep(0.05)\n").replace(
    "import sys", "import sys, time"
)
"""The times of all bindings are known at the end; the others have a processor, too."""


class Killings:
    """An ingesting process, a worker of Connect and a broker, each of which is killed and started again."""

    def __init__(self, root: Path, kafka: Broker, worker: Worker, spec: KafkaSource, draw: random.Random) -> None:
        self._root, self._kafka, self._worker, self._draw = root, kafka, worker, draw
        (root / "spec").write_bytes(codec.encode(spec))
        self._start()

    def one(self, which: str) -> None:
        """Kills one of them after some more bindings, somewhere within its work."""
        wanted = len(bound_times(self._root)) + self._draw.randrange(2, 8)

        def bound() -> bool:
            assert not (failed := self._worker.failures(PREFIX)), failed
            return len(bound_times(self._root)) >= wanted

        wait_until(bound, pause=self._draw.uniform(0.1, 0.3))
        if which == "connect":
            self._worker.kill()
            self._worker.start()
        elif which == "broker":
            self._kafka.stop(grace=0)
            self._kafka.start()
        else:
            self.end()
            self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", UNCOMPACTED, str(self._root), str(self._root / "spec")],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@pytest.mark.parametrize("seed", [7, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6))])
@pytest.mark.timeout(3600)
def test_crash_everything_between_two_databases(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    with broker(tmp_path / "kafka") as kafka, server_on_tcp() as server:
        create_database(server, "shop", SCHEMA)
        create_topics(kafka, *NAMES, "signals", partitions=draw.randrange(1, 3))
        with connect(kafka, tmp_path / "connect", flush_ms=draw.choice([50, 500, 5_000])) as worker:
            more = {"heartbeat_interval_ms": "200"} if seed % 2 else {"tombstones_on_delete": "false"}
            worker.configure(PREFIX, connector(server, "shop", schemas=bool(seed % 2), **more))
            until_streaming(kafka, server)
            history = ShopHistory(server, "shop", seed, truncates=False)
            root, spec = tmp_path / "shards", source(kafka, max_bytes_per_tick=draw.choice([20_000, 1 << 20]))
            root.mkdir()
            with Run(root, spec) as run:
                first = until_whole(run)
            killings = Killings(root, kafka, worker, spec, draw)
            try:
                with history.going_on(0.02):
                    for what in ("connect", "ingester", "connect", "broker"):
                        killings.one(what)
            finally:
                killings.end()
            # how much was written meanwhile depends on the machine: it is not left to so many ticks
            with Run(root, replace(spec, max_bytes_per_tick=1 << 20), term=2) as run:
                history.reconnect()
                finish(history, run, worker)
            history.close()
        check(root, history.states, first)


def until_streaming(kafka: Broker, server: Postgres) -> None:
    """Wait until a transaction that was committed after the snapshot is in Kafka."""
    database = Database(server, "shop")

    def streams() -> bool:
        database.run("update items set ok = ok where id = 1")
        return bool(consumed(kafka, TRANSACTIONS, 1))

    wait_until(streams, bound=120.0, pause=0.2)


def until_whole(run: Run) -> int:
    """The first tick at which the tables have the snapshot, and take whole transactions from then on."""
    run.until(lambda: is_joined(run) and all(is_settled(run, name) for name in NAMES), seconds=BOUND)
    return run.at


def finish(history: ShopHistory, run: Run, worker: Worker) -> None:
    """Later events in each partition: at last, when the killed processes are back, the tables are as upstream."""
    for _ in range(2):
        history.write_all()
    last = history.states[-1]

    def as_upstream() -> bool:
        assert not (failed := worker.failures(PREFIX)), failed
        return all(ingested_rows(run.root, name, run.at) == last[name] for name in NAMES)

    run.until(as_upstream, seconds=BOUND)
    assert not run.source.stop_reasons()


def check(root: Path, states: list[Any], first: int) -> None:
    """Each binding is a state between two transactions, and none is older than one before."""
    at, replays = 0, {name: Replay(root, name) for name in NAMES}
    for time in bound_times(root):
        found = {name: replay.until(time) for name, replay in replays.items()}
        if time < first:
            continue
        while at < len(states) and states[at] != found:
            at += 1
        assert at < len(states), f"the contents at {time} are of no moment between transactions, or of an earlier one"


def bound_times(root: Path) -> list[int]:
    """The times of the bindings."""
    remap = open_shard(f"{root}/remap")
    parts = remap.listen(0, remap.state().upper)
    return sorted({time for part in parts for batch in read_part(part) for time in batch.column(TIME).to_pylist()})


class Replay:
    """A table's contents at later and later times."""

    def __init__(self, root: Path, table: str) -> None:
        shard = open_shard(f"{root}/{table}")
        parts = shard.listen(0, shard.state().upper)
        updates = [row for part in parts for batch in read_part(part) for row in batch.to_pylist()]
        self._updates = deque(sorted(updates, key=lambda row: row[TIME]))
        self._rows = Counter[Row]()

    def until(self, time: int) -> Counter[Row]:
        while self._updates and self._updates[0][TIME] <= time:
            row = self._updates.popleft()
            del row[TIME]
            diff, error = row.pop(DIFF), row.pop(ERROR)
            self._rows[row_key((*row.values(), error))] += diff
        return +self._rows
