"""A `kafka` source beside a broker of its own: JSON and Avro of the same records, from the broker to appended files.

`kafka_json_ratio`: the speed of JSON records of 200 bytes, as a share of Spark's batch reading and parsing of the same
bytes from files (written to nowhere, on both cores; the source has one thread). `kafka_json_cpu_ratio`: the same by
CPU. `kafka_json_per_core_s`: records for each second of CPU of the ingesting process. `kafka_avro_ratio`: that of Avro,
as a multiple of JSON's.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import fastavro
from pyspark.sql import SparkSession

from bench.harness.answers import WrongAnswer
from bench.harness.clock import measured
from bench.harness.context import progress
from tests.kafka.broker import Broker, broker
from tests.kafka.topics import Run, new_topic, producer, spec_of
from tests.storage.ingestion_samples import contents
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaTable
from tidemark_protocol.types import Column, SqlType

TURNS = 3
FILES = 2
COLUMNS = tuple(
    Column(name, SqlType.parse(type))
    for name, type in (
        ("id", "bigint"),
        ("customer", "string"),
        ("amount", "double"),
        ("quantity", "int"),
        ("open", "boolean"),
        ("comment", "string"),
    )
)
_AVRO = {"bigint": "long", "string": "string", "double": "double", "int": "int", "boolean": "boolean"}
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": column.name, "type": _AVRO[str(column.type)]} for column in COLUMNS],
}
_PARSED = fastavro.parse_schema(SCHEMA)


def figures(session: SparkSession, records: int) -> dict[str, Any]:
    """The figures above, and `kafka_record_bytes`: the mean size of a JSON record. Each topic has `records` records."""
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder) / "broker") as kafka:
        progress(f"{records} records in Kafka")
        root = Path(folder)
        values = [record_of(i) for i in range(records)]
        texts = [json.dumps(value).encode() for value in values]
        tables = {
            "json": KafkaTable("t", _topic(kafka, texts), "json", COLUMNS),
            "avro": KafkaTable(
                "t",
                _topic(kafka, [_avro(value) for value in values]),
                "avro",
                (),
                schema=KafkaSchema(json.dumps(SCHEMA)),
            ),
        }
        lines = root / "lines"
        lines.mkdir()
        for i in range(FILES):
            (lines / f"{i}.json").write_bytes(b"\n".join(texts[i::FILES]) + b"\n")

        def peer() -> None:
            schema = ", ".join(f"{column.name} {column.type}" for column in COLUMNS)
            session.read.schema(schema).json(str(lines)).write.format("noop").mode("overwrite").save()

        wall: dict[str, list[float]] = {"json": [], "avro": [], "peer": []}
        cpu: dict[str, list[float]] = {"json": [], "avro": [], "peer": []}
        for turn in range(TURNS + 1):
            cost, _ = measured(peer)
            wall["peer"].append(cost.wall)
            cpu["peer"].append(cost.cpu / 1000)
            for format, table in tables.items():
                with Run(root / f"{format}{turn}", spec_of(kafka, table, max_bytes_per_tick=1 << 30)) as run:
                    run.until(lambda run=run: run.source._bound)  # type: ignore[misc]
                    begin = process_time()
                    cost, _ = measured(_until(run, records))
                    cpu[format].append(process_time() - begin)
                    wall[format].append(cost.wall)
        names = [column.name for column in COLUMNS]
        rows = [contents(root / f"{format}{TURNS}", "t").select(names).sort_by("id") for format in tables]
        if rows[0].num_rows != records or not rows[0].equals(rows[1]):
            raise WrongAnswer(f"the tables have {rows[0].num_rows} and {rows[1].num_rows} rows of {records}")
    json_cpu, avro_cpu = min(cpu["json"][1:]), min(cpu["avro"][1:])
    return {
        "kafka_json_ratio": round(min(wall["peer"][1:]) / min(wall["json"][1:]), 2),
        "kafka_json_cpu_ratio": round(min(cpu["peer"][1:]) / json_cpu, 2),
        "kafka_json_per_core_s": round(records / json_cpu),
        "kafka_avro_ratio": round(json_cpu / avro_cpu, 2),
        "kafka_record_bytes": round(sum(map(len, texts)) / records),
    }


def _until(run: Run, records: int) -> Callable[[], None]:
    def work() -> None:
        while sum(run.source._bound["t"].offsets.values()) < records:
            run.tick()

    return work


def record_of(i: int) -> dict[str, Any]:
    """A row of COLUMNS."""
    return {
        "id": i,
        "customer": f"customer-{i % 9973:06}",
        "amount": i % 100_000 / 8,
        "quantity": i % 50,
        "open": i % 3 == 0,
        "comment": f"{i * 2_654_435_761 % 2**64:064x}{i % 97:030}",
    }


def _topic(kafka: Broker, values: list[bytes]) -> str:
    topic, writer = new_topic(kafka), producer(kafka, **{"linger.ms": 50})
    for value in values:
        while True:
            try:
                writer.produce(topic, value, None, 0)
                break
            except BufferError:
                writer.poll(0.1)
    writer.flush(120)
    return topic


def _avro(value: dict[str, Any]) -> bytes:
    """The body of SCHEMA."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, value)
    return out.getvalue()
