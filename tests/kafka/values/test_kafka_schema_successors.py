"""Another schema for the values of a table: its successor has the further columns, also of the records of before, or
the edit is refused by name."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from tests.avro.samples import written
from tests.kafka.broker import Broker
from tests.kafka.debezium.avro_events import body as event_body
from tests.kafka.debezium.avro_events import envelope, nullable
from tests.kafka.debezium.avro_events import record as named_record
from tests.kafka.test_kafka_crashes import KEY
from tests.kafka.topics import PLACE, Run, delete_records, new_topic, no_secret, produce, spec_of, upper
from tests.schema_registry.registry import Registry, framed, registry
from tests.storage.dying_steps import dies
from tests.storage.ingestion_samples import description, errors, oks
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka import source as kafka_source
from tidemark_replica.storage.kafka.inspect import tables_of

pytestmark = [pytest.mark.kafka, pytest.mark.broad]


def record(*fields: tuple[Any, ...], name: str = "Order") -> dict[str, Any]:
    named = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": name, "fields": named}


ID, NAME = ("id", "long"), ("name", "string")
V1 = record(ID, NAME)
V2 = record(ID, ("state", "string", "new"), NAME, ("vip", ["null", "string"], None))
"""Two further fields, one of them with a default that is a value."""


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry() as one:
        yield one


@pytest.fixture(autouse=True)
def topics_are_looked_at_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "LOOK_SECONDS", 0.0)


def avro(topic: str, **options: Any) -> KafkaTable:
    table = KafkaTable("t", topic, "avro", (), PLACE, schema=KafkaSchema(subject="s", version=1), framed=True)
    return replace(table, **options)


def pinned(spec: KafkaSource) -> KafkaSource:
    """With the schemas that an inspection finds, as the operator stores them; those that are stored stay."""
    found = {table.name: table for table in tables_of(spec, no_secret)}

    def with_text(schema: KafkaSchema | None, text: str) -> KafkaSchema | None:
        return schema and replace(schema, text=schema.text or text)

    return replace(
        spec,
        tables=tuple(
            replace(
                table,
                schema=with_text(table.schema, found[table.name].schema),
                key_schema=with_text(table.key_schema, found[table.name].key_schema),
            )
            for table in spec.tables
        ),
    )


def following(spec: KafkaSource, schema: KafkaSchema) -> KafkaSource:
    """With the successor that an edit of the schema makes."""
    last = spec.tables[-1]
    return replace(spec, tables=(replace(last, name="t.2", schema=schema, successor=True),))


def grown(spec: KafkaSource, schema: KafkaSchema) -> KafkaSource:
    return pinned(replace(spec, tables=(*spec.tables, *following(spec, schema).tables)))


def why_refused(root: Path, spec: KafkaSource, schema: KafkaSchema) -> str:
    """The reason why the edit of the schema is refused; empty where it is not."""
    stored = description(root, spec, tables_of(spec, no_secret))
    try:
        tables_of(following(spec, schema), no_secret, stored)
    except SourceUnusable as error:
        return str(error)
    return ""


def ingested(root: Path, spec: KafkaSource) -> None:
    with Run(root, spec) as run:
        run.catch_up()


def orders(server: Registry, *values: Mapping[str, Any], version: int = 1) -> list[bytes]:
    schema = (V1, V2)[version - 1]
    return [framed(server.subjects["s"][version - 1], written(schema, value)) for value in values]


def test_a_newer_version_at_the_registry_gives_columns(kafka: Broker, tmp_path: Path, server: Registry) -> None:
    """Records of writers with the first schema have the default, or NULL; also such that come later. The first table
    is read on by its own schema, and the ingester begins anew in between."""
    topic = new_topic(kafka)
    server.register("s", V1)
    produce(kafka, topic, *orders(server, {"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}), None, b"bad")
    spec = pinned(spec_of(kafka, avro(topic, on_bad_record="deadLetter"), registry=server.url))
    ingested(tmp_path, spec)
    server.register("s", V2)
    produce(kafka, topic, *orders(server, {"id": 3, "name": "eve", "state": "old", "vip": "yes"}, version=2))
    ingested(tmp_path, spec)
    assert why_refused(tmp_path, spec, KafkaSchema(subject="s", version=2)) == ""
    both = grown(spec, KafkaSchema(subject="s", version=2))
    with Run(tmp_path, both) as run:
        run.tick()
        assert upper(tmp_path, "t.2") == upper(tmp_path, "t") == run.at + 1
        for i, version in ((4, 1), (5, 2)):
            produce(kafka, topic, *orders(server, {"id": i, "name": "x", "state": "s", "vip": "v"}, version=version))
            run.catch_up()
            assert run.source._tables["t.2"]._reader is None, "one read feeds both"
    produce(kafka, topic, *orders(server, {"id": 6, "name": "y"}))
    ingested(tmp_path, both)
    names = {1: "ann", 2: "bob", 3: "eve", 4: "x", 5: "x", 6: "y"}
    places = {1: 0, 2: 1, 3: 4, 4: 5, 5: 6, 6: 7}
    rows: list[Any] = [(i, name, 0, places[i]) for i, name in names.items()]
    assert oks(tmp_path, "t") == sorted([*rows, (None, None, 0, 2)], key=repr)
    more = {3: ("old", "yes"), 5: ("s", "v")}
    both_of = {i: more.get(i, ("new", None)) for i in names}
    rows = [(i, both_of[i][0], name, both_of[i][1], 0, places[i]) for i, name in names.items()]
    assert oks(tmp_path, "t.2") == sorted([*rows, (None, None, None, None, 0, 2)], key=repr)
    assert oks(tmp_path, "t_dead_letter.2") == oks(tmp_path, "t_dead_letter")
    assert errors(tmp_path, "t") == errors(tmp_path, "t.2") == {}


def message_text(*fields: tuple[str, int, int], name: str = "Order", optional: str = "") -> str:
    """The set of descriptors of a message, in base64. `optional`: the field that may be absent."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name=name)
    for field, number, type in fields:
        if field == optional:
            message.oneof_decl.add(name=f"_{field}")
            message.field.add(name=field, number=number, type=type, label=1, oneof_index=0, proto3_optional=True)
        else:
            message.field.add(name=field, number=number, type=type, label=1)
    return base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()


def message(text: str, **values: Any) -> bytes:
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text))
    pool = descriptor_pool.DescriptorPool()
    file: Any = pool.AddSerializedFile(files.file[0].SerializeToString())
    data: bytes = GetMessageClass(next(iter(file.message_types_by_name.values())))(**values).SerializeToString()
    return data


P1 = message_text(("id", 1, 3), ("name", 2, 9))
P2 = message_text(("id", 1, 3), ("vip", 4, 9), ("name", 2, 9), ("n", 3, 5), optional="vip")


@pytest.mark.parametrize("is_framed", [False, True])
def test_a_newer_message_gives_columns(kafka: Broker, tmp_path: Path, server: Registry, is_framed: bool) -> None:
    """Records of before lack its fields: one that may be absent is NULL, another one has its default. Protobuf's own
    numbers tell fields apart, so a frame is not needed."""
    topic = new_topic(kafka)
    files = [descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text)).file[0] for text in (P1, P2)]
    ids = [server.register("s", base64.b64encode(f.SerializeToString()).decode(), "PROTOBUF") for f in files]

    def value(version: int, **values: Any) -> bytes:
        data = message((P1, P2)[version - 1], **values)
        return framed(ids[version - 1], b"\x00" + data) if is_framed else data

    schemas = (
        [KafkaSchema(subject="s", version=1), KafkaSchema(subject="s", version=2)]
        if is_framed
        else [KafkaSchema(text=P1), KafkaSchema(text=P2)]
    )
    table = KafkaTable("t", topic, "protobuf", (), schema=schemas[0], framed=is_framed)
    spec = pinned(spec_of(kafka, table, registry=server.url if is_framed else ""))
    produce(kafka, topic, value(1, id=1, name="ann"))
    ingested(tmp_path, spec)
    assert why_refused(tmp_path, spec, schemas[1]) == ""
    both = grown(spec, schemas[1])
    ingested(tmp_path, both)
    produce(kafka, topic, value(2, id=2, name="bob", vip="yes", n=7), value(1, id=3, name="eve"))
    ingested(tmp_path, both)
    assert oks(tmp_path, "t") == [(1, "ann"), (2, "bob"), (3, "eve")]
    assert oks(tmp_path, "t.2") == [(1, None, "ann", 0), (2, "yes", "bob", 7), (3, None, "eve", 0)]


def test_rows_by_key_of_another_schema(kafka: Broker, tmp_path: Path, server: Registry) -> None:
    topic = new_topic(kafka)
    for schema in (V1, V2):
        server.register("s", schema)
    spec = pinned(
        spec_of(
            kafka,
            avro(topic, metadata=(), envelope="upsert", key_format="text", key_columns=KEY),
            registry=server.url,
        )
    )
    for key, value in ((b"a", {"id": 1, "name": "ann"}), (b"b", {"id": 2, "name": "bob"})):
        produce(kafka, topic, *orders(server, value), key=key)
    produce(kafka, topic, *orders(server, {"id": 3, "name": "eve", "state": "s", "vip": "v"}, version=2), key=b"a")
    ingested(tmp_path, spec)
    both = grown(spec, KafkaSchema(subject="s", version=2))
    ingested(tmp_path, both)
    produce(kafka, topic, *orders(server, {"id": 4, "name": "joe"}), key=b"c")
    produce(kafka, topic, None, key=b"b")
    ingested(tmp_path, both)
    assert oks(tmp_path, "t") == [("a", 3, "eve"), ("c", 4, "joe")]
    assert oks(tmp_path, "t.2") == [("a", 3, "s", "eve", "v"), ("c", 4, "new", "joe", None)]


def test_a_column_of_debezium_comes_in_avro(kafka: Broker, tmp_path: Path, server: Registry) -> None:
    """Events of before have its default, or NULL. A column that is NOT NULL upstream needs no default to
    be read."""
    topic, fields = new_topic(kafka), ({"name": "id", "type": "long"}, nullable("string", "name"))
    more = (*fields, {"name": "n", "type": "int"}, {"name": "state", "type": "string", "default": "new"})
    versions = [envelope(*fields), envelope(*more)]
    ids = [server.register("s", schema) for schema in versions]
    key = named_record("Key", {"name": "id", "type": "long"}, namespace="shop.public.t")
    key_id = server.register("key", key)

    def change(version: int, op: str, **row: Any) -> None:
        event = {"op": op, "after": None if op == "d" else row, "source": {"connector": "postgresql"}}
        value = framed(ids[version - 1], event_body(versions[version - 1], event))
        produce(kafka, topic, value, key=framed(key_id, written(key, {"id": row["id"]})))

    table = avro(
        topic,
        metadata=(),
        envelope="debezium",
        key_format="avro",
        key_schema=KafkaSchema(subject="key"),
        key_framed=True,
    )
    spec = pinned(spec_of(kafka, table, registry=server.url))
    change(1, "c", id=1, name="ann")
    change(1, "c", id=2, name="bob")
    change(2, "u", id=2, name="eve", n=7, state="old")
    ingested(tmp_path, spec)
    assert why_refused(tmp_path, spec, KafkaSchema(subject="s", version=2)) == ""
    both = grown(spec, KafkaSchema(subject="s", version=2))
    ingested(tmp_path, both)
    change(2, "c", id=3, name="joe", n=1, state="x")
    change(2, "d", id=1)
    ingested(tmp_path, both)
    assert oks(tmp_path, "t") == [(2, "eve"), (3, "joe")]
    assert oks(tmp_path, "t.2") == [(2, "eve", 7, "old"), (3, "joe", 1, "x")]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record(ID, NAME, ("vip", "string")), "$.vip: the writer has no such field, and the reader's has no default"),
        (record(ID, NAME, ("vip", "string", "x"), name="Other"), "cannot be read as the reader's record Other"),
        (record(ID, ("name", "int"), ("vip", "string", "x")), "$.name: the writer's type string cannot be read as"),
        (message_text(("id", 1, 3), ("name", 3, 9), ("vip", 2, 9)), "$.name: the field has the number 3"),
        (message_text(("id", 1, 3), ("name", 2, 9), ("vip", 3, 9), name="Other"), "they are messages Order, not Other"),
        (message_text(("id", 1, 9), ("name", 2, 9), ("vip", 3, 9)), "$.id: field 1 has another type"),
    ],
)
def test_a_schema_that_does_not_read_what_was_written_is_refused(
    kafka: Broker, tmp_path: Path, server: Registry, schema: Any, why: str
) -> None:
    """Before anything is stored: the table goes on by its own schema."""
    format = "protobuf" if isinstance(schema, str) else "avro"
    text = schema if isinstance(schema, str) else json.dumps(schema)
    topic = new_topic(kafka)
    table = avro(topic, format=format, schema=KafkaSchema(text=P1 if format == "protobuf" else json.dumps(V1)))
    spec = spec_of(kafka, table, registry=server.url)
    ingested(tmp_path, spec)
    found = why_refused(tmp_path, spec, KafkaSchema(text=text))
    assert found.startswith("table t: values that were written with the schema of before cannot be read with this one")
    assert why in found


def test_records_that_are_gone_refuse_the_edit(kafka: Broker, tmp_path: Path, server: Registry) -> None:
    topic = new_topic(kafka)
    for schema in (V1, V2):
        server.register("s", schema)
    produce(kafka, topic, *orders(server, {"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}))
    spec = pinned(spec_of(kafka, avro(topic), registry=server.url))
    ingested(tmp_path, spec)
    delete_records(kafka, topic, 0, 1)
    assert "begins at offset 1, and the table at 0" in why_refused(tmp_path, spec, KafkaSchema(subject="s"))


@pytest.mark.parametrize(
    ("first", "every"),
    [pytest.param(9, 1000), *(pytest.param(n, 4, marks=pytest.mark.slow) for n in range(4))],
)
def test_crash_at_each_step_of_a_begin_by_another_schema(
    kafka: Broker, tmp_path: Path, server: Registry, first: int, every: int
) -> None:
    """Records of both schemas come in between. No time shows the successor without what the first table had."""
    topic, written_ids = new_topic(kafka, 2), count(1)
    for schema in (V1, V2):
        server.register("s", schema)
    spec = pinned(spec_of(kafka, avro(topic), registry=server.url, max_bytes_per_tick=300))
    both, died, total = grown(spec, KafkaSchema(subject="s", version=2)), 0, 0

    def write(records: int) -> None:
        nonlocal total
        for _ in range(records):
            i = next(written_ids)
            total = i
            value = {"id": i, "name": f"{i}", "state": "s", "vip": f"v{i}"}
            produce(kafka, topic, *orders(server, value, version=1 + i % 2), partition=i // 2 % 2)

    write(20)
    for step in count(first, every):
        root = tmp_path / f"{step}"
        root.mkdir()
        ingested(root, spec)
        died_here = dies("kafka", root, both, step)
        write(3)
        ingested(root, both)
        expected: list[Any] = [
            (i, "s", f"{i}", f"v{i}") if i % 2 else (i, "new", f"{i}", None) for i in range(1, total + 1)
        ]
        assert sorted(row[:4] for row in oks(root, "t.2")) == expected
        assert sorted(row[:2] for row in oks(root, "t")) == [(i, f"{i}") for i in range(1, total + 1)]
        if not died_here or every == 1000:
            break
        died += 1
    assert died_here if every == 1000 else died >= 5
