"""Rows by keys of Avro and Protobuf: after each tick a table has the last row of each decoded key, as a dictionary has;
writers of several schemas, an absent registry, and other processes."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from tests.avro.samples import written
from tests.kafka.broker import Broker
from tests.kafka.topics import PLACE, Run, new_topic, no_secret, produce, producer, spec_of
from tests.schema_registry.registry import Registry, framed, registry
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.types import BIGINT, STRING, Column, SqlType
from tidemark_replica.storage import schema_registry
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka import waits
from tidemark_replica.storage.kafka.inspect import tables_of

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
BINARY = SqlType("binary")
Key = tuple[int, str]
Write = Callable[[int, str], bytes]


def record(*fields: tuple[Any, ...]) -> dict[str, Any]:
    named = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": "Key", "fields": named}


READER = record(("id", "long"), ("part", ["null", "string"], ""))
OTHER_ORDER = record(("part", "string"), ("id", "int"), ("more", "int"))
WITHOUT_PART = record(("id", "int"))
UNFIT = record(("id", "string"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    for module in (schema_registry, waits):
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.05)
    with registry() as one:
        yield one


def keyed(topic: str, format: str, schema: KafkaSchema, **options: Any) -> KafkaTable:
    table = KafkaTable("t", topic, "text", (Column("value", STRING),), PLACE, envelope="upsert")
    return replace(table, key_format=format, key_schema=schema, **options)


def avro_keys(server: Registry) -> tuple[KafkaSchema, dict[str, Write]]:
    """Writers by name; those of `null`, `unfit` and `plain` write malformed keys."""
    reader, other, short, unfit = (
        server.register("k", schema) for schema in (READER, OTHER_ORDER, WITHOUT_PART, UNFIT)
    )
    return KafkaSchema(subject="k", version=1), {
        "same": lambda id, part: framed(reader, written(READER, {"id": id, "part": part})),
        "other": lambda id, part: framed(other, written(OTHER_ORDER, {"id": id, "part": part, "more": 7})),
        "short": lambda id, _: framed(short, written(WITHOUT_PART, {"id": id})),
        "null": lambda id, _: framed(reader, written(READER, {"id": id, "part": None})),
        "unfit": lambda id, _: framed(unfit, written(UNFIT, {"id": str(id)})),
        "plain": lambda id, part: written(READER, {"id": id, "part": part}),
    }


def protobuf_keys(server: Registry) -> tuple[KafkaSchema, dict[str, Write]]:
    """Protobuf's keys, as in `avro_keys`. The message is the second one of its file."""
    file = descriptor_pb2.FileDescriptorProto(name="k.proto", syntax="proto3")
    file.message_type.add(name="First").field.add(name="n", number=1, type=5, label=1)
    key = file.message_type.add(name="Key")
    key.field.add(name="id", number=1, type=3, label=1)
    key.field.add(name="part", number=2, type=9, label=1)
    id = server.register("k", base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")

    def body(id: int, part: str) -> bytes:
        return b"\x08" + bytes([id]) + b"\x12" + bytes([len(part)]) + part.encode()

    def framed_key(of: bytes) -> bytes:
        return framed(id, b"\x02\x02" + of)

    return KafkaSchema(subject="k", message="Key"), {
        "same": lambda id, part: framed_key(body(id, part)),
        "other": lambda id, part: framed_key(b"\x12" + bytes([len(part)]) + part.encode() + b"\x08" + bytes([id])),
        "short": lambda id, _: framed_key(b"\x08" + bytes([id])),
        "unfit": lambda number, _: framed(id, b"\x00\x08" + bytes([number])),
        "plain": body,
    }


def pinned(spec: KafkaSource) -> KafkaSource:
    """With the schemas that an inspection finds, as the operator stores them."""
    found = {table.name: table.key_schema for table in tables_of(spec, no_secret)}
    tables = (replace(t, key_schema=replace(t.key_schema, text=found[t.name])) for t in spec.tables if t.key_schema)
    return replace(spec, tables=tuple(tables))


@pytest.mark.parametrize(("format", "keys"), [("avro", avro_keys), ("protobuf", protobuf_keys)])
def test_oracle_keys_of_several_writers(
    kafka: Broker, server: Registry, tmp_path: Path, format: str, keys: Callable[..., Any]
) -> None:
    draw, topic = random.Random(format), new_topic(kafka, 2)
    schema, writers = keys(server)
    table = keyed(topic, format, schema, key_framed=True)
    tables = table, replace(table, name="d", on_bad_record="deadLetter")
    spec = pinned(spec_of(kafka, *tables, registry=server.url, max_bytes_per_tick=2000))
    meant: list[tuple[int, Key | None, str | None]] = []
    """The records: for each its partition, its key (None where that is malformed), and its value."""
    run, writer = Run(tmp_path, spec), producer(kafka)
    for at in range(8):
        server.status = 503 if at == 3 else 0
        for _ in range(draw.randrange(1, 25)):
            id, part, name = draw.randrange(1, 6), draw.choice(["", "a"]), draw.choice(list(writers))
            value = draw.choice([None, f"v{len(meant)}", f"v{len(meant)}"])
            key = None if name in ("null", "unfit", "plain") else (id, "" if name == "short" else part)
            writer.produce(topic, value, writers[name](id, part), partition=id % 2)
            meant.append((id % 2, key, value))
        assert writer.flush(30) == 0
        for _ in range(draw.randrange(4)):
            run.tick()
            check(kafka, topic, run, meant)
        if draw.random() < 0.4:
            run.close()
            run = Run(tmp_path, spec)  # another process, which knows no schema of a writer yet
    run.catch_up()
    assert run.source.warning() == ""
    check(kafka, topic, run, meant)
    assert oks(tmp_path, "t")
    assert errors(tmp_path, "t")
    run.close()


def check(kafka: Broker, topic: str, run: Run, meant: list[tuple[int, Key | None, str | None]]) -> None:
    """Both tables have what the records before their bound offsets leave, and each malformed key an error, or a
    letter."""
    by_partition = {p: [each for each in meant if each[0] == p] for p in (0, 1)}
    for name in ("t", "d"):
        bound = run.source._bound.get(name)
        offsets = bound.offsets if bound is not None else {}
        rows: dict[Key, tuple[Any, ...]] = {}
        malformed = 0
        for partition, records in by_partition.items():
            for offset, (_, key, value) in enumerate(records[: offsets.get(partition, 0)]):
                malformed += key is None
                if key is not None:
                    rows.pop(key, None)
                    if value is not None:
                        rows[key] = (*key, value, partition, offset)
        if run.one.table_shards()[0][1].state().upper:  # type: ignore[index]
            assert oks(run.root, name) == sorted(rows.values())
            bad = errors(run.root, "t") if name == "t" else oks(run.root, "d_dead_letter")
            assert len(bad) == malformed


def test_an_avro_key_that_is_no_record_is_the_column_key(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    topic, other = new_topic(kafka), new_topic(kafka)
    narrow, wide, text = (server.register("k", schema) for schema in ('"int"', '"long"', '"string"'))
    numbers = keyed(topic, "avro", KafkaSchema(subject="k", version=2), key_framed=True)
    texts = replace(keyed(other, "avro", KafkaSchema('["null", "string"]')), name="u")
    produce(kafka, topic, b"a", key=framed(narrow, written("int", 7)))
    produce(kafka, topic, b"b", key=framed(wide, written("long", 7)))
    produce(kafka, topic, b"c", key=framed(wide, written("long", 8)))
    produce(kafka, topic, b"d", key=framed(text, written("string", "7")))
    produce(kafka, other, b"a", key=written(["null", "string"], "x"))
    produce(kafka, other, b"b", key=written(["null", "string"], None))
    with Run(tmp_path, pinned(spec_of(kafka, numbers, texts, registry=server.url))) as run:
        run.catch_up()
    assert oks(tmp_path, "t") == [(7, "b", 0, 1), (8, "c", 0, 2)]
    assert [json.loads(each)["expression"] for each in errors(tmp_path, "t")] == [f"{topic}/0@3"]
    assert oks(tmp_path, "u") == [("x", "a", 0, 0)]
    assert len(errors(tmp_path, "u")) == 1


def test_a_table_waits_for_the_schema_of_a_key(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    """Nothing is skipped while the registry is away, and another table of the source goes on."""
    topic = new_topic(kafka)
    schema, writers = avro_keys(server)
    table = keyed(topic, "avro", schema, key_framed=True)
    other = replace(table, name="b", key_format="bytes", key_framed=False, key_schema=None)
    other = replace(other, key_columns=(Column("key", BINARY),))
    spec = spec_of(kafka, table, other, registry=server.url)
    texts = {found.name: found.key_schema for found in tables_of(spec, no_secret)}
    spec = replace(spec, tables=(replace(table, key_schema=replace(schema, text=texts["t"])), spec.tables[1]))
    server.status = 503
    produce(kafka, topic, b"v", key=writers["other"](1, "a"))
    with Run(tmp_path, spec) as run:
        run.until(lambda: run.source.warning().startswith("RegistryAway"))
        run.until(lambda: len(oks(tmp_path, "b")) == 1)
        assert oks(tmp_path, "t") == []
        server.status = 0
        run.catch_up()
        assert run.source.warning() == ""
    assert oks(tmp_path, "t") == [(1, "a", "v", 0, 0)]
    assert not errors(tmp_path, "t")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (record(("x", "double")), "column x is double: a key has no floating numbers"),
        ({"type": "array", "items": "int"}, "column key is array<int>: a key has no"),
        (record(("VALUE", "int")), "column names must be there and differ"),
        (record(), "a table needs a record with fields"),
        ("none", "table t: key: its schema: "),
        (None, "table t: key: format avro needs a schema"),
    ],
)
def test_a_key_that_no_table_has_is_refused_by_name(schema: Any, problem: str) -> None:
    given = None if schema is None else KafkaSchema(json.dumps(schema))
    table = replace(keyed("T", "avro", KafkaSchema()), key_schema=given)
    with pytest.raises(SourceUnusable, match=problem):
        tables_of(spec_of(Broker(Path(), 9), table), no_secret)


def test_the_columns_of_a_key_are_its_schemas() -> None:
    (table,) = tables_of(spec_of(Broker(Path(), 9), keyed("T", "avro", KafkaSchema(json.dumps(READER)))), no_secret)
    assert table.keys == ((0, 1),)
    assert table.columns[:3] == (Column("id", BIGINT, False), Column("part", STRING, False), Column("value", STRING))
    assert (table.schema, table.key_schema) == ("", json.dumps(READER))
