"""The age of the records of a sink's topic: from a record of one topic to the record of another one that has it.

    kafka_end_to_end_p50_s, kafka_end_to_end_p99_s    with a tick of 1 s

The whole system: an API server, an operator, a replica that ingests the topic, keeps the view and writes its changes to
the other topic, and a broker, all on the cores of this machine. A view counts the records of each kind and has the
greatest of their numbers. RECORDS_PER_S records come for a while, of KINDS kinds in turn; a read_committed consumer
notes when it has which number. The age of a record is from the moment before it is produced to the one at which the
consumer has a change of its kind with its number or a greater one. At the end the topic has the count of each kind.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from bench.harness.answers import WrongAnswer
from bench.harness.context import progress
from bench.harness.live_lineitem import started_system
from tests.e2e.system import System
from tests.kafka.broker import Broker, broker
from tests.kafka.topics import new_topic, producer

RECORDS_PER_S, BATCH, KINDS = 2_000, 20, 100
WARM_UP_SECONDS, END_SECONDS = 15.0, 120.0
SOURCE, SINK = "changes", "counts"
VIEW = "SELECT kind, count(*) AS n, max(number) AS last FROM broker.changes GROUP BY kind"


def figures(seconds: float, folder: Path) -> dict[str, Any]:
    """The figures of `seconds` after a warm-up. Raises WrongAnswer."""
    with broker(folder / "end-to-end") as kafka, started_system() as system:
        new_topic(kafka, name=SOURCE)
        new_topic(kafka, name=SINK)
        _install(system, kafka)
        with _arrivals(kafka) as came:
            progress(f"{RECORDS_PER_S:,} records/s from one topic to another")
            produced = _load(kafka, WARM_UP_SECONDS + seconds)
            ages = _ages(produced, _complete(came, len(produced)))
    counted = ages[produced >= produced[0] + WARM_UP_SECONDS]
    return {
        "kafka_end_to_end_p50_s": round(float(np.percentile(counted, 50)), 2),
        "kafka_end_to_end_p99_s": round(float(np.percentile(counted, 99)), 2),
        "kafka_end_to_end_records_per_s": round(len(produced) / (produced[-1] - produced[0])),
    }


def _install(system: System, kafka: Broker) -> None:
    """The source and the view, and wait until the view is delivered."""
    system.base(memory="2Gi")
    columns = [{"name": name, "type": "BIGINT"} for name in ("number", "kind")]
    table = {"name": SOURCE, "topic": SOURCE, "format": "json", "columns": columns}
    brokers = [kafka.address]
    system.apply(
        "DataSource", "broker", {"instance": "default", "tick": "1s", "kafka": {"brokers": brokers, "tables": [table]}}
    )
    sink = {"brokers": brokers, "topic": SINK, "key": ["kind"]}
    system.dataflow("counts", VIEW, materializedView={"kafkaSink": sink})
    system.wait_condition("dataflow", "counts", "Delivered")


@contextmanager
def _arrivals(kafka: Broker) -> Iterator[list[tuple[float, int, int, int]]]:
    """When a consumer had which change: the time, the kind, how many records the kind has, the greatest number."""
    came: list[tuple[float, int, int, int]] = []
    end = Event()
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(SINK, 0, 0)])

    def read() -> None:
        while not end.is_set():
            for message in consumer.consume(1000, 0.02):
                value = message.value()
                if message.error() is None and value is not None:
                    row = json.loads(value)
                    came.append((time.time(), int(row["kind"]), int(row["n"]), int(row["last"])))

    reader = Thread(target=read, daemon=True)
    reader.start()
    try:
        yield came
    finally:
        end.set()
        reader.join()
        consumer.close()


def _load(kafka: Broker, seconds: float) -> np.ndarray:
    """The moment before each record was produced, by its number."""
    produced: list[float] = []
    writer = producer(kafka, **{"linger.ms": 0})
    begin = time.time()
    while (now := time.time()) < begin + seconds:
        if (early := begin + len(produced) / RECORDS_PER_S - now) > 0:
            time.sleep(early)
        for number in range(len(produced), len(produced) + BATCH):
            produced.append(time.time())
            writer.produce(SOURCE, json.dumps({"number": number, "kind": number % KINDS}))
        writer.poll(0)
    writer.flush()
    return np.array(produced)


def _complete(came: list[tuple[float, int, int, int]], records: int) -> list[tuple[float, int, int, int]]:
    """The changes once the last one of each kind came. Raises WrongAnswer where its count is not that of its kind."""
    expected = {kind: len(range(kind, records, KINDS)) for kind in range(KINDS)}
    deadline = time.monotonic() + END_SECONDS
    while (counts := {kind: n for _, kind, n, _ in list(came)}) != expected:
        if time.monotonic() > deadline:
            raise WrongAnswer(f"topic {SINK} counts {sum(counts.values()):,} records; {records:,} were produced")
        time.sleep(0.5)
    return list(came)


def _ages(produced: np.ndarray, came: list[tuple[float, int, int, int]]) -> np.ndarray:
    """The age of each record, in seconds, when the first change that has it came."""
    times = np.array([change[0] for change in came])
    kinds, lasts = (np.array([change[place] for change in came]) for place in (1, 3))
    ages = np.empty(len(produced))
    for kind in range(KINDS):
        own = kinds == kind
        numbers = np.arange(kind, len(produced), KINDS)
        ages[numbers] = times[own][np.searchsorted(lasts[own], numbers)] - produced[numbers]
    return ages
