"""Topics, producers and ingesters for the tests of the Kafka source, and what an independent consumer reads."""

from __future__ import annotations

import ctypes
import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from tests.kafka.broker import Broker
from tests.storage.ingestion_samples import description
from tests.waiting import until
from tidemark_persist import ShardWriters, open_shard
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.ingestion import Option
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.kafka.inspect import tables_of
from tidemark_replica.storage.kafka.source import KafkaIngestion

COLUMNS = (Column("id", BIGINT), Column("name", STRING))
PLACE = (Option("p", "partition"), Option("o", "offset"))
SECONDS = 60


def new_topic(kafka: Broker, partitions: int = 1, name: str = "", **config: str) -> str:
    """Creates a topic; its name."""
    name = name or f"t-{uuid.uuid4().hex[:12]}"
    topic = NewTopic(name, partitions, config={key.replace("_", "."): value for key, value in config.items()})
    kafka.admin().create_topics([topic])[name].result(SECONDS)
    return name


def delete_topic(kafka: Broker, name: str) -> None:
    kafka.admin().delete_topics([name])[name].result(SECONDS)


def add_partitions(kafka: Broker, name: str, total: int) -> None:
    kafka.admin().create_partitions([NewPartitions(name, total)])[name].result(SECONDS)
    until(lambda: len(kafka.admin().list_topics(name, timeout=SECONDS).topics[name].partitions) == total)


def delete_records(kafka: Broker, name: str, partition: int, before: int) -> None:
    """Removes the records with offsets below `before`, as retention does."""
    at = TopicPartition(name, partition, before)
    kafka.admin().delete_records([at])[at].result(SECONDS)


def producer(kafka: Broker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": kafka.address, "log_level": 0, "partitioner": "murmur2_random", **settings})


def transactions(kafka: Broker, topic: str) -> Producer:
    """A producer of transactions; a newer one of the topic replaces it."""
    writer = producer(kafka, **{"transactional.id": f"{topic}-x"})
    writer.init_transactions(30)
    return writer


@contextmanager
def either_writer(draw: random.Random, plain: Producer, transactional: Producer, aborts: float) -> Iterator[Producer]:
    """One of two producers, for some records, which are written on exit. `aborts`: the probability with which a
    transaction aborts instead."""
    writer = draw.choice([plain, transactional])
    if writer is transactional:
        writer.begin_transaction()
    yield writer
    if writer is plain:
        plain.flush()
    elif draw.random() < aborts:
        transactional.abort_transaction(30)
    else:
        transactional.commit_transaction(30)


def produce(kafka: Broker, topic: str, *values: Any, partition: int = 0, key: bytes | None = None) -> None:
    """Records with these values: bytes as they are, None, anything else as JSON."""
    writer = producer(kafka)
    for value in values:
        data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        writer.produce(topic, data, key, partition)
    assert writer.flush(SECONDS) == 0


def produce_with_header(kafka: Broker, topic: str, header: bytes, value: bytes) -> None:
    """A record whose header's key are these bytes. Python's producer takes text alone, librdkafka any bytes."""
    (path,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new"):
        getattr(library, name).restype = ctypes.c_void_p
    conf, text = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", kafka.address.encode(), text, ctypes.c_size_t(512))
    client = ctypes.c_void_p(library.rd_kafka_new(0, conf, text, ctypes.c_size_t(512)))
    size, copy = ctypes.c_size_t, 2
    given = (1, topic.encode(), 3, 0, 4, value, size(len(value)), 7, copy, 9, header, b"1", size(1), 0)
    assert library.rd_kafka_producev(client, *given) == 0
    assert library.rd_kafka_flush(client, SECONDS * 1000) == 0
    library.rd_kafka_destroy(client)


def consumed(kafka: Broker, topic: str, partitions: int) -> list[Any]:
    """Every committed record of the topic, by a consumer of the tests' own."""
    reader = Consumer(
        {
            "bootstrap.servers": kafka.address,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(topic, p) for p in range(partitions)])
    records, ended = [], set()
    while len(ended) < partitions:
        message = reader.poll(SECONDS)
        assert message is not None
        if message.error() is None:
            records.append(message)
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    reader.close()
    return records


def spec_of(kafka: Broker, *tables: KafkaTable, **options: Any) -> KafkaSource:
    return KafkaSource((kafka.address,), tables, **options)


def ingester(root: Path, spec: KafkaSource, term: int = 1, secret: Any = None) -> Ingester:
    """A new one, as a new process would make it."""
    source = KafkaIngestion(spec, secret or no_secret)
    return Ingester(
        description(root, spec, tables_of(spec, secret or no_secret)), WriterTerm(term), source, ShardWriters()
    )


def no_secret(name: str) -> dict[str, str]:
    raise AssertionError(f"Secret {name} was read")


class Run:
    """An ingester that ticks by itself. `at`: the last tick."""

    def __init__(self, root: Path, spec: KafkaSource, term: int = 1, secret: Any = None) -> None:
        self.root, self.spec = root, spec
        self.one = ingester(root, spec, term, secret)
        self.one.recover()
        self.at = int(self.one.shards()[0].state().upper) // 100 * 100

    @property
    def source(self) -> Any:
        return self.one._source

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.at += 100
            assert self.one.tick(Time(self.at))

    def until(self, holds: Any, ticks: int = 400, seconds: float = 0.0) -> None:
        """Ticks until the condition holds: `ticks` at most, or more until `seconds` are over, where another process has
        to write what is waited for."""
        began, made = time.monotonic(), 0
        while not holds():
            if made >= ticks and time.monotonic() - began > seconds:
                found = f"{self.source.warning()} {dict(self.source.stop_reasons())}"
                raise AssertionError(f"not after {made} ticks: {found}")
            self.tick()
            made += 1

    def catch_up(self) -> None:
        """Ticks until every table that can has read all that there is."""
        topics = [t for t in self.spec.tables if t.name not in self.source.stop_reasons()]
        self.until(lambda: self.source._bound.keys() >= {t.name for t in topics})
        for table in topics:
            self.until(lambda table=table: self.is_at_end(table))  # type: ignore[misc]

    def is_at_end(self, table: KafkaTable) -> bool:
        bound = self.source._bound[table.name].offsets
        return table.name in self.source.stop_reasons() or bound == ends(self.spec.brokers[0], table.topic)

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ends(address: str, topic: str) -> dict[int, int]:
    """The offsets after the last committed record."""
    settings = {"bootstrap.servers": address, "group.id": "ends", "isolation.level": "read_committed", "log_level": 0}
    reader = Consumer(settings)
    partitions = reader.list_topics(topic, timeout=SECONDS).topics[topic].partitions
    assert partitions, f"topic {topic} has no partitions"
    found = {p: reader.get_watermark_offsets(TopicPartition(topic, p), SECONDS)[1] for p in partitions}
    reader.close()
    return found


def upper(root: Path, table: str) -> int:
    return int(open_shard(f"{root}/{table}").state().upper)


def counted(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(rows)
