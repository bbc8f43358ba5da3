"""Debezium's connector where something fails at a known moment: Kafka Connect dies within a transaction, PostgreSQL
dies with a transaction open, and a table of a transaction is truncated. Each binding is a state between transactions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
from tests.kafka.debezium.test_kafka_real_debezium import check, finish, until_streaming, until_whole
from tests.kafka.topics import Run, consumed
from tests.postgres.databases import connect as connect_to
from tests.postgres.databases import create_database, ingested_rows
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]
ATTEMPTS = 20


@dataclass
class Shop:
    """The database, what writes its changes to Kafka, and the transactions so far."""

    kafka: Broker
    server: Postgres
    worker: Worker
    history: ShopHistory

    def open_transactions(self) -> set[str]:
        """The transactions whose BEGIN is in Kafka, and whose END is not."""
        begun = set[str]()
        for record in consumed(self.kafka, TRANSACTIONS, 1):
            event = json.loads(record.value())
            id = event["id"].partition(":")[0]
            begun.add(id) if event["status"] == "BEGIN" else begun.discard(id)
        return begun

    def write_many(self) -> None:
        """A transaction with thousands of events, which Connect writes in several batches."""
        with connect_to(self.server, "shop") as writer:
            for _ in range(150):
                writer.execute("update items set amount = coalesce(amount, 0) + 1")
        self.history.states.append(self.history.now())


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with broker(tmp_path / "kafka") as kafka, server_on_tcp() as server:
        create_database(server, "shop", SCHEMA)
        create_topics(kafka, *NAMES, "signals")
        with connect(kafka, tmp_path / "connect", flush_ms=500) as worker:
            worker.configure(PREFIX, connector(server, "shop", schemas=False, tombstones_on_delete="false"))
            until_streaming(kafka, server)
            yield Shop(kafka, server, worker, ShopHistory(server, "shop", 1, truncates=False))


def test_crash_connect_within_a_transaction(shop: Shop, tmp_path: Path) -> None:
    """It writes the transaction's events again, from the beginning or from within: the tables have each once."""
    root = tmp_path / "shards"
    with Run(root, source(shop.kafka)) as run:
        first = until_whole(run)
        for _ in range(3):
            die_within_a_transaction(shop)
            run.tick(3)
            shop.worker.start()
            run.tick(3)
        finish(shop.history, run, shop.worker)
    shop.history.close()
    check(root, shop.history.states, first)


def die_within_a_transaction(shop: Shop) -> None:
    """Kills Connect after it has written the BEGIN of a transaction, and before its END."""
    for _ in range(ATTEMPTS):
        shop.write_many()
        until(lambda: shop.open_transactions() or is_written(shop))
        shop.worker.kill()
        if shop.open_transactions():
            return
        shop.worker.start()
    raise AssertionError(f"Connect has always written the END of {ATTEMPTS} transactions before it was killed")


def is_written(shop: Shop) -> bool:
    """Whether the END of as many transactions is in Kafka as there were at least."""
    ended = [r for r in consumed(shop.kafka, TRANSACTIONS, 1) if json.loads(r.value())["status"] == "END"]
    return len(ended) >= len(shop.history.states)


def test_crash_the_database_with_a_transaction_open(shop: Shop, tmp_path: Path) -> None:
    """Rows of committed transactions come, those of the open one never do; Connect connects again by itself."""
    root = tmp_path / "shards"
    with Run(root, source(shop.kafka)) as run:
        first = until_whole(run)
        for _ in range(2):
            shop.write_many()
            writer = connect_to(shop.server, "shop")
            writer.execute("update items set part = 'lost'")
            run.tick()
            shop.history.close()
            shop.server.kill()
            run.tick(3)
            shop.server.start()
            shop.history.reconnect()
            writer.close()
        finish(shop.history, run, shop.worker)
    shop.history.close()
    check(root, shop.history.states, first)
    assert not shop.worker.failures(PREFIX)


def test_a_truncated_table_stops_alone(shop: Shop, tmp_path: Path) -> None:
    """The other tables of the transaction, and later transactions, go on without it."""
    with Run(tmp_path / "shards", source(shop.kafka)) as run:
        until_whole(run)
        with connect_to(shop.server, "shop") as writer:
            writer.execute("update \"Odd Orders\" set note = 'with the truncation'")
            writer.execute("truncate items")
        run.until(lambda: "items" in run.source.stop_reasons())
        assert run.source.stop_reasons()["items"].startswith("Truncated: table items")
        for _ in range(2):
            shop.history.write_all()
        last = shop.history.states[-1]
        run.until(lambda: ingested_rows(run.root, "Odd Orders", run.at) == last["Odd Orders"])
        assert run.source.stop_reasons().keys() == {"items"}
    shop.history.close()
