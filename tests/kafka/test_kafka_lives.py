"""Kafka tables of DataSources that come and go, of which some adopt the tables of the one before."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.test_kafka_crashes import KEY
from tests.kafka.topics import COLUMNS, PLACE, consumed, delete_records, ends, new_topic, no_secret, produce, spec_of
from tests.storage.dying_appends import die_around
from tests.storage.source_lives import Lives, Rows, random_lives
from tidemark_protocol.plan.ingestion import SourceTable
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage import ingester as ingester_module
from tidemark_replica.storage.kafka.inspect import tables_of
from tidemark_replica.storage.kafka.source import KafkaIngestion

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
PARTITIONS = 2


class KafkaKind:
    """Tables over two topics: of all records, or of the newest of each key."""

    def __init__(self, kafka: Broker, seed: int) -> None:
        self.kafka, self.random, self.written = kafka, random.Random(seed), 0
        self.topics = {new_topic(kafka, PARTITIONS): dict.fromkeys(range(PARTITIONS), 0) for _ in range(2)}
        """With the ends of partitions when some table had all records last."""
        for topic in self.topics:
            self.write(topic)

    def table(self, name: str) -> KafkaTable:
        topic, envelope = self.random.choice(list(self.topics)), self.random.choice(["none", "upsert"])
        if envelope == "none":
            return KafkaTable(name, topic, "json", COLUMNS, PLACE, on_gap="skip")
        by_key: dict[str, Any] = {"envelope": envelope, "key_format": "text", "key_columns": KEY}
        return KafkaTable(name, topic, "json", COLUMNS, PLACE, on_gap="skip", **by_key)

    def write(self, topic: str = "") -> None:
        topic = topic or self.random.choice(list(self.topics))
        for _ in range(3):
            self.written += 1
            key = f"{self.written % 5}".encode()
            produce(self.kafka, topic, {"id": self.written, "name": "x"}, partition=self.written % 5 % 2, key=key)

    def forget(self) -> None:
        topic, partition = self.random.choice(list(self.topics)), self.random.randrange(PARTITIONS)
        if (end := self.topics[topic][partition]) > 0:
            delete_records(self.kafka, topic, partition, self.random.randrange(end) + 1)

    def spec(self, tables: Sequence[KafkaTable]) -> KafkaSource:
        return spec_of(self.kafka, *tables)

    def found(self, spec: KafkaSource) -> tuple[SourceTable, ...]:
        return tables_of(spec, no_secret)

    def source(self, spec: KafkaSource) -> KafkaIngestion:
        return KafkaIngestion(spec, no_secret)

    def is_read(self, source: Any, spec: KafkaSource) -> bool:
        return all(
            table.name in source._bound and source._bound[table.name].offsets == ends(self.kafka.address, table.topic)
            for table in spec.tables
        )

    def rows(self, table: KafkaTable, before: Rows) -> Rows:
        self.topics[table.topic] = ends(self.kafka.address, table.topic)
        records = consumed(self.kafka, table.topic, PARTITIONS)
        added = [None] * len(table.added)
        found = [(json.loads(r.value())["id"], "x", *added, r.partition(), r.offset()) for r in records]
        if table.envelope == "none":
            return Counter({*before, *found})
        newest: dict[Any, tuple[object, ...]] = {row[0]: row for row in before}
        return Counter((newest | {f"{row[0] % 5}": (f"{row[0] % 5}", *row) for row in found}).values())


def test_a_table_of_a_name_that_adopted_bindings_know(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has all records, though the table before it had them."""
    monkeypatch.setattr(ingester_module, "REMAP_SINCE_LAG_MS", 100)
    kind = KafkaKind(kafka, 0)
    lives = Lives(tmp_path, kind)
    a, b = (KafkaTable(name, next(iter(kind.topics)), "json", COLUMNS, PLACE) for name in "ab")
    assert not lives.begin([a, b])
    lives.settle()
    assert not lives.begin([a])
    lives.settle()
    lives.compact()
    lives.edit([b], [])
    kind.write()
    lives.settle()
    lives.close()
    lives.check()


@pytest.mark.parametrize("envelope", ["none", "upsert"])
def test_a_successor_of_a_name_that_adopted_bindings_know(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, envelope: str
) -> None:
    """The earlier successor had more records than the table had when it began; it is not adopted."""
    monkeypatch.setattr(ingester_module, "REMAP_SINCE_LAG_MS", 100)
    kind = KafkaKind(kafka, 0)
    lives = Lives(tmp_path, kind)
    by_key: dict[str, Any] = {"key_format": "text", "key_columns": KEY} if envelope == "upsert" else {}
    a = KafkaTable("a", next(iter(kind.topics)), "json", COLUMNS, PLACE, envelope=envelope, **by_key)
    grown = replace(a, name="a.2", columns=(*COLUMNS, Column("vip", STRING)), added=("vip",))
    assert not lives.begin([a])
    lives.settle()
    for _ in range(2):
        kind.write(a.topic)
        lives.edit([grown], [])
        lives.settle()
        kind.write(a.topic)
        lives.settle()
        assert not lives.begin([a])
        lives.settle()
    lives.compact()
    lives.edit([grown], [])
    lives.settle()
    lives.close()
    lives.check()


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))])
def test_random_lives(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(ingester_module, "REMAP_SINCE_LAG_MS", 300)
    kind = KafkaKind(kafka, seed)
    lives = Lives(tmp_path, kind)
    done = random_lives(lives, kind, seed, 30, die_around(monkeypatch, 1_000_000))
    lives.check()
    assert done["adopt"] + done["add"]
