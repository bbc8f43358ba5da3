"""Values of Avro through a broker and a registry: writers evolve, the registry is away, and no record is lost."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from tests.avro.samples import written
from tests.kafka.broker import Broker
from tests.kafka.topics import PLACE, Run, new_topic, no_secret, produce, spec_of
from tests.schema_registry.registry import framed, registry
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage import schema_registry
from tidemark_replica.storage.kafka import followed_topic, waits
from tidemark_replica.storage.kafka.inspect import tables_of
from tidemark_replica.storage.kafka.values import framing, schemas

pytestmark = pytest.mark.kafka


def record(*fields: tuple[Any, ...]) -> dict[str, Any]:
    named = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": "Order", "fields": named}


V1 = record(("id", "long"), ("name", "string"))
V2 = record(("name", "string"), ("id", "int"), ("state", "string", "new"))
OTHER = record(("id", "string"), ("name", "string"))


def pinned(spec: KafkaSource) -> KafkaSource:
    """With the schemas that an inspection finds, as the operator stores them."""
    texts = {table.name: table.schema for table in tables_of(spec, no_secret)}
    return replace(
        spec,
        tables=tuple(
            replace(table, schema=replace(table.schema, text=texts[table.name])) if table.schema else table
            for table in spec.tables
        ),
    )


def test_writers_evolve_and_the_registry_goes_away(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (schema_registry, waits):
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.05)
    topic = new_topic(kafka)
    with registry() as server:
        v1 = server.register("s", V1)
        table = KafkaTable("t", topic, "avro", (), PLACE, schema=KafkaSchema(subject="s"), framed=True)
        other = KafkaTable("u", topic, "bytes", (Column("v", SqlType("binary")),), PLACE)
        spec = pinned(spec_of(kafka, table, other, registry=server.url))
        v2, unfit = server.register("s", V2), server.register("s", OTHER)
        produce(kafka, topic, framed(v1, written(V1, {"id": 1, "name": "ann"})), None)
        with Run(tmp_path, spec) as run:
            run.catch_up()
            assert run.source.warning() == ""
            server.status = 503
            produce(kafka, topic, framed(v2, written(V2, {"id": 2, "name": "bob", "state": "x"})))
            produce(
                kafka,
                topic,
                framed(unfit, written(OTHER, {"id": "3", "name": "eve"})),
                framed(v1, written(V1, {"id": 4, "name": ""})),
            )
            run.until(lambda: len(oks(tmp_path, "u")) == 5)
            assert run.source.warning().startswith(
                "RegistryAway: the registry at 127.0.0.1: it answers with status 503"
            )
            assert len(oks(tmp_path, "t")) == 2
            assert not errors(tmp_path, "t")
        with Run(tmp_path, spec, 2) as run:  # another process, which knows no schema yet
            server.status = 0
            run.catch_up()
            assert run.source.warning() == ""
    assert sorted(oks(tmp_path, "t"), key=lambda row: row[3]) == [
        (1, "ann", 0, 0),
        (None, None, 0, 1),
        (2, "bob", 0, 2),
        (4, "", 0, 4),
    ]
    (error,) = errors(tmp_path, "t")
    assert f"{topic}/0@3" in error


def test_inline_schemas_and_dead_letters(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema is parsed when the source begins, and at no tick."""
    topic = new_topic(kafka)
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=5, label=1)
    text = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()
    tables = (
        KafkaTable("a", topic, "avro", (), PLACE, on_bad_record="deadLetter", schema=KafkaSchema(json.dumps(V1))),
        KafkaTable("p", topic, "protobuf", (), PLACE, on_bad_record="deadLetter", schema=KafkaSchema(text)),
    )
    produce(kafka, topic, written(V1, {"id": 1, "name": "ann"}), b"\x08\x05", b"\xff")
    with Run(tmp_path, spec_of(kafka, *tables)) as run:
        for name in ("parse_schema", "descriptors_of_text"):
            monkeypatch.setattr(schemas, name, lambda *_: pytest.fail("a schema was parsed"))
        run.catch_up()
    assert oks(tmp_path, "a") == [(1, "ann", 0, 0)]
    assert [row[-1] for row in oks(tmp_path, "a_dead_letter")] == ["a length is negative", "it ends within a value"]
    assert (5, 0, 1) in oks(tmp_path, "p")


def test_a_batch_of_many_schemas_is_read_in_smaller_ones_for_a_while(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry gives one schema before the table waits; once it has given all, batches are as large as before."""
    for module in (schema_registry, waits):
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(framing, "QUESTIONS_SECONDS", 0.0)
    monkeypatch.setattr(followed_topic, "BATCH_RECORDS", 16)
    topic = new_topic(kafka)
    with registry() as server:
        ids = [server.register("s", V1) for _ in range(3)]
        table = KafkaTable("t", topic, "avro", (), schema=KafkaSchema(json.dumps(V1)), framed=True)
        produce(kafka, topic, *(framed(id, written(V1, {"id": id, "name": ""})) for id in ids))
        with Run(tmp_path, spec_of(kafka, table, registry=server.url)) as run:
            followed = run.source._tables["t"]
            run.until(lambda: "t" in run.source._undecoded)
            assert "fewer records" in run.source.warning()
            assert followed._records_max == 4
            run.catch_up()
            run.until(lambda: followed._records_max == 16)
    assert oks(tmp_path, "t") == [(id, "") for id in ids]


def test_rows_by_key_of_avro_values(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    key = (Column("k", SqlType("string")),)
    keyed = {"envelope": "upsert", "key_format": "text", "key_columns": key}
    table = KafkaTable("t", topic, "avro", (), schema=KafkaSchema(json.dumps(V1)), **keyed)  # type: ignore[arg-type]
    for name, value in (("a", 1), ("b", 2), ("a", 3)):
        produce(kafka, topic, written(V1, {"id": value, "name": name}), key=name.encode())
    produce(kafka, topic, None, key=b"b")
    with Run(tmp_path, spec_of(kafka, table)) as run:
        run.catch_up()
    assert oks(tmp_path, "t") == [("a", 3, "a")]
