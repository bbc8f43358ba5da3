"""Values with a registry's frame: writers' schemas resolve to the pinned one, and a bad frame harms no neighbour."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
from google.protobuf.message_factory import GetMessageClass

from tests.avro.samples import read, written
from tests.schema_registry.registry import Registry, framed, registry
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage import schema_registry
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.inspect import tables_of
from tidemark_replica.storage.kafka.rows import letters_of
from tidemark_replica.storage.kafka.values import framing, schemas
from tidemark_replica.storage.kafka.values.decoding import decoder_of, value_columns
from tidemark_replica.storage.schema_registry import RegistryAway, SchemaRegistry


def record(*fields: Any, name: str = "shop.Order") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), f, strict=False)) for f in fields],
    }


V1 = record(("id", "int"), ("name", "string"), ("gone", {"type": "map", "values": {"type": "array", "items": "long"}}))
READER = record(("id", "long"), ("name", ["null", "string"]), ("state", ["null", "string"], None), ("n", "int", 7))
V2 = record(("n", "int"), ("state", ["string", "null", "int"]), ("id", "int"), ("name", "bytes"))


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry() as one:
        yield one


def avro(schema: Any = READER, **more: Any) -> KafkaTable:
    return KafkaTable("t", "t", "avro", (), schema=KafkaSchema(text=json.dumps(schema)), **more)


def rows(
    table: KafkaTable, values: list[bytes | None], server: Registry | None = None
) -> tuple[list[Any], dict[int, str]]:
    found = decoder_of(table, None if server is None else SchemaRegistry(server.url, None))(values)
    assert all(len(column) == len(values) - len(found.bad) for column in found.columns)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True)), found.bad


def test_writers_resolve_to_the_readers_schema(server: Registry) -> None:
    v1, v2, same = (server.register("s", schema) for schema in (V1, V2, READER))
    other = server.register("s", record(("id", "string"), ("name", "string")))
    json_schema = server.register("s", "{}", "JSON")
    one = written(V1, {"id": 1, "name": "ann", "gone": {"a": [1, 2], "b": []}})
    two = written(V2, {"n": 3, "state": "new", "id": -2, "name": "größe".encode()})
    unknown_branch = written(V2, {"n": 3, "state": 5, "id": -2, "name": b"x"})
    three = written(READER, {"id": 1 << 40, "name": None, "state": "old", "n": 0})
    values: list[bytes | None] = [
        framed(v1, one),
        None,
        framed(v2, two),
        framed(other, one),
        framed(same, three),
        framed(v2, unknown_branch),
        framed(json_schema, one),
        b"",
        b"\x00\x00\x00",
        b"\x01" + framed(v1, one)[1:],
        framed(v1, one + b"\x00"),
        framed(v1, one),
    ]
    found, bad = rows(avro(framed=True), values, server)
    assert found == [
        (1, "ann", None, 7),
        (None, None, None, None),
        (-2, "größe", "new", 3),
        (1 << 40, None, "old", 0),
        (1, "ann", None, 7),
    ]
    assert list(bad) == [3, 5, 6, 7, 8, 9, 10]
    assert "schema 4 of its writer does not fit: $.id: the writer's type string" in bad[3]
    for row, why in ((5, "branch"), (6, "of type 'JSON'"), (7, "no frame")):
        assert why in bad[row]
    assert len(set(server.requests)) == len(server.requests) == 5


def test_a_schema_that_is_not_there_holds_the_table_and_then_makes_its_records_malformed(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = server.register("s", V1)
    good = framed(id, written(V1, {"id": 1, "name": "a", "gone": {}}))
    decode = decoder_of(avro(framed=True), SchemaRegistry(server.url, None))
    with pytest.raises(RegistryAway):
        decode([good, framed(77, b"")])
    monkeypatch.setattr(schema_registry, "PATIENCE_SECONDS", 0.0)
    assert decode([good, framed(77, b""), good]).bad == {1: "the registry has no schema 77"}
    assert len(decode([good]).columns[0]) == 1


def test_all_ids_of_a_batch_are_asked_for_before_the_table_waits(server: Registry) -> None:
    decode = decoder_of(avro(framed=True), SchemaRegistry(server.url, None))
    for _ in range(2):
        with pytest.raises(RegistryAway, match="no schema"):
            decode([framed(id, b"") for id in (7, 8, 9)])
    assert server.requests == [f"/base/schemas/ids/{id}" for id in (7, 8, 9)] * 2


def test_ids_that_were_not_asked_for_come_first(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no time for all of them, the next batch asks for others, and none is asked for never."""
    monkeypatch.setattr(framing, "QUESTIONS_SECONDS", 0.0)
    decode = decoder_of(avro(framed=True), SchemaRegistry(server.url, None))
    for _ in range(4):
        with pytest.raises(RegistryAway):
            decode([framed(id, b"") for id in (7, 8, 9)])
    assert server.requests == [f"/base/schemas/ids/{id}" for id in (7, 8, 9, 7)]


def test_a_batch_of_too_many_schemas_says_so(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "QUESTIONS_SECONDS", 0.0)
    ids = [server.register("s", V1) for _ in range(3)]
    value = written(V1, {"id": 1, "name": "a", "gone": {}})
    decode = decoder_of(avro(framed=True), SchemaRegistry(server.url, None))
    with pytest.raises(framing.TooManySchemas):
        decode([framed(id, value) for id in ids])
    assert [len(decode([framed(id, value)]).columns[0]) for id in ids] == [1, 1, 1]


UNHASHABLE = {"type": {"type": "string"}}, {"type": ["null", "string"]}


@pytest.mark.parametrize("type", UNHASHABLE)
def test_types_in_types(type: Any) -> None:
    found, bad = rows(avro(record(("t", type))), [written(record(("t", type["type"])), {"t": "a"})])
    assert (found, bad) == ([("a",)], {})


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (record(("id", "int"), ("e", {"type": "enum", "name": "E", "symbols": ["\ud800"]})), "AVRO"),
        (record(("id", "int"), ("e", {"type": {"type": {"type": "what"}}})), "AVRO"),
        ("{}", "\ud800"),
    ],
)
def test_a_schema_of_a_writer_harms_no_record_of_others(server: Registry, schema: Any, kind: str) -> None:
    good, bad = server.register("s", READER), server.register("s", schema, kind)
    value = framed(good, written(READER, {"id": 1, "name": None, "state": None, "n": 2}))
    found, malformed = rows(avro(framed=True), [value, framed(bad, b"\x00"), value], server)
    assert len(found) == 2
    assert list(malformed) == [1]
    malformed[1].encode()


def test_a_schema_that_our_code_fails_on_is_its_writers(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = server.register("s", READER), server.register("s", V2)
    decode = decoder_of(avro(framed=True), SchemaRegistry(server.url, None))
    value = framed(good, written(READER, {"id": 1, "name": None, "state": None, "n": 2}))
    decode([value])

    def fails(*_: Any) -> Any:
        raise IndexError("with data in it")

    monkeypatch.setattr(schemas, "parse_schema", fails)
    assert decode([value, framed(bad, b"\x00")]).bad == {1: "schema 2 of its writer cannot be used: IndexError"}


def test_reasons_of_dead_letters_are_short_and_unicode() -> None:
    record = Message(topic="t", partition=0, offset=1, key=b"k", value=b"v")
    (reason,) = letters_of([record], ["\ud800" + "x" * 5_000], Time(1)).column("reason").to_pylist()
    assert reason.startswith("\\ud800xxx")
    assert len(reason) < 600


PROMOTIONS = ("int", "long", "float", "double", "string", "bytes")


@pytest.mark.parametrize("seed", range(40))
def test_agree_with_fastavro_on_evolved_schemas(seed: int) -> None:
    rng = random.Random(seed)
    types = {f"f{i}": rng.choice(PROMOTIONS) for i in range(4)}
    writer = record(*((name, rng.choice([type, ["null", type]])) for name, type in types.items()))
    wider = {"int": ("long", "float", "double"), "long": ("double",), "float": ("double",), "string": ("bytes",)}
    fields: list[Any] = []
    for name, type in rng.sample(list(types.items()), 3):
        new = rng.choice([type, *wider.get(type, ())])
        fields.append((name, rng.choice([new, ["null", new]])))
    fields.insert(rng.randrange(4), ("added", "string", "default"))
    reader = record(*fields)
    made = {"int": 5, "long": 1 << 33, "float": 0.5, "double": 1.25, "string": "größe", "bytes": b"\x01abc"}
    values = [
        {
            f["name"]: None if isinstance(f["type"], list) and rng.random() < 0.5 else made[types[f["name"]]]
            for f in writer["fields"]
        }
        for _ in range(20)
    ]
    bodies = [written(writer, value) for value in values]
    with registry() as server:
        id = server.register("s", writer)
        found, bad = rows(avro(reader, framed=True), [framed(id, body) for body in bodies], server)
    names, good = [f["name"] for f in reader["fields"]], iter(found)
    for i, body in enumerate(bodies):
        try:
            value = read(body, writer, reader)
        except ValueError:
            assert i in bad
            continue
        assert next(good) == tuple(value[name] for name in names)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record(("m", {"type": "map", "values": "int"})), "$.m: type map has no counterpart"),
        (record(("u", ["int", "string"])), "a union of int, string has no counterpart"),
        (record(("a", {"type": "array", "items": "null"})), "has no counterpart"),
        (record(("a", {"type": "array", "items": record(("n", ["null", "int"]), name="X")})), ""),
        (record(("self", ["null", "shop.Order"])), "contains itself"),
        (record(("n", "int", "x")), "the default is no value"),
        (record(("e", {"type": "enum", "name": "E", "symbols": ["A"]}, "B")), "the default is no value"),
        (record(("e", {"type": "enum", "name": "E", "symbols": ["\ud800"]})), "half of a pair of surrogates"),
        (record(("t", {"type": "long", "logicalType": "timestamp-millis"}, "x")), "the default is no value"),
        (record(("n", "Unknown")), "type 'Unknown' is unknown"),
        (record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 50})), "decimal(50,0)"),
        ("string", "a table needs a record"),
        (record(("A", "int"), ("a", "int")), "column names must be there and differ: A, a"),
    ],
)
def test_schemas_that_no_table_has_are_refused_by_name(schema: Any, why: str) -> None:
    spec = KafkaSource(("k:1",), (avro(schema),))
    if not why:
        tables_of(spec, dict.__getitem__)  # type: ignore[arg-type]
        return
    with pytest.raises(SourceUnusable) as found:
        tables_of(spec, dict.__getitem__)  # type: ignore[arg-type]
    assert why in str(found.value)


def test_the_schema_is_pinned_at_inspection(server: Registry) -> None:
    server.register("s", V2)
    server.register("s", READER)
    for version, schema in ((0, READER), (1, V2)):
        table = KafkaTable("t", "t", "avro", (), schema=KafkaSchema(subject="s", version=version), framed=True)
        spec = KafkaSource(("k:1",), (table,), registry=server.url)
        if version == 1:
            with pytest.raises(SourceUnusable, match="a union of string, null, int"):
                tables_of(spec, dict.__getitem__)  # type: ignore[arg-type]
            continue
        (found,) = tables_of(spec, dict.__getitem__)  # type: ignore[arg-type]
        assert json.loads(found.schema) == schema
        assert [str(column.type) for column in found.columns] == ["bigint", "string", "string", "int"]
    table = KafkaTable("t", "t", "avro", (), schema=KafkaSchema(secret="schemas", key="order.avsc"))
    (found,) = tables_of(KafkaSource(("k:1",), (table,)), lambda name: {"order.avsc": json.dumps(READER)})
    assert json.loads(found.schema) == READER


def message_file(*fields: tuple[str, int, int], name: str = "Order", proto3_optional: bool = False) -> Any:
    """A file with a message of these fields (name, number, type), an enum, and a nested message."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name=name)
    for field, number, type in fields:
        message.field.add(name=field, number=number, type=type, label=F.LABEL_OPTIONAL)
    return file


def full_file() -> Any:
    file = message_file(("id", 1, F.TYPE_INT64), ("name", 2, F.TYPE_STRING), ("big", 3, F.TYPE_UINT64))
    message = file.message_type[0]
    message.field.add(name="state", number=4, type=F.TYPE_ENUM, type_name=".shop.State", label=F.LABEL_OPTIONAL)
    message.field.add(name="at", number=5, type=F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    message.field.add(name="tags", number=6, type=F.TYPE_STRING, label=F.LABEL_REPEATED)
    message.field.add(name="line", number=7, type=F.TYPE_MESSAGE, type_name=".shop.Order.Line", label=F.LABEL_OPTIONAL)
    message.field.add(name="lines", number=8, type=F.TYPE_MESSAGE, type_name=".shop.Order.Line", label=F.LABEL_REPEATED)
    message.oneof_decl.add(name="_note")
    message.field.add(name="note", number=9, type=F.TYPE_STRING, label=1, oneof_index=0, proto3_optional=True)
    message.nested_type.add(name="Line").field.add(name="n", number=1, type=F.TYPE_SINT32, label=F.LABEL_OPTIONAL)
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="SHIPPED", number=1)
    return file


def text_of(*files: Any) -> str:
    return base64.b64encode(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()).decode()


def protobuf(file: Any, **more: Any) -> KafkaTable:
    return KafkaTable("t", "t", "protobuf", (), schema=KafkaSchema(text=text_of(file)), **more)


def message_class(file: Any, name: str = "shop.Order") -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf_messages_become_columns() -> None:
    file = full_file()
    table = protobuf(file)
    types = ["bigint", "string", "decimal(20,0)", "string", "timestamp"]
    types += ["array<string>", "struct<n:int>", "array<struct<n:int>>", "string"]
    assert [str(column.type) for column in value_columns(table)] == types
    make = message_class(file)
    full = make(id=-5, name="größe", big=2**64 - 1, state=1, tags=["a", ""], note="")
    full.at.seconds, full.at.nanos = 1, 1500
    full.line.n = -3
    full.lines.add(n=1)
    full.lines.add()
    unknown = make(state=9)
    late = make()
    late.at.seconds = 1 << 50
    values = [full.SerializeToString(), None, b"", b"\xff", unknown.SerializeToString(), late.SerializeToString()]
    found, bad = rows(table, [*values, b"\x12\x01\xff", full.SerializeToString()])
    assert list(bad) == [3, 5, 6]
    assert found[0][:4] == (-5, "größe", 2**64 - 1, "SHIPPED")
    assert found[0][4].isoformat() == "1970-01-01T00:00:01.000001+00:00"
    assert found[0][5:] == (["a", ""], {"n": -3}, [{"n": 1}, {"n": 0}], "")
    assert found[1] == (None,) * 9
    assert found[2] == (0, "", 0, "NEW", None, [], None, [], None)
    assert found[3][3] == "9"
    assert found[4] == found[0]


def test_messages_that_double_with_each_level_are_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    for level in range(16):
        message = file.message_type.add(name=f"M{level}")
        for number in (1, 2):
            field = message.field.add(name=f"f{number}", number=number, label=F.LABEL_OPTIONAL, type=F.TYPE_INT32)
            if level < 15:
                field.type, field.type_name = F.TYPE_MESSAGE, f".shop.M{level + 1}"
    with pytest.raises(SourceUnusable, match="more than 20000 fields"):
        value_columns(protobuf(file))
    table = KafkaTable("t", "t", "protobuf", (), schema=KafkaSchema(text=text_of(file), message="shop.M10"))
    assert len(value_columns(table)) == 2


def test_protobuf_writers_are_checked_by_number(server: Registry) -> None:
    def registered(file: Any) -> int:
        return server.register("s", base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")

    reader = message_file(("id", 1, F.TYPE_INT64), ("name", 2, F.TYPE_STRING))
    narrow = message_file(("number", 1, F.TYPE_INT32), ("more", 3, F.TYPE_STRING))
    wrong = message_file(("id", 1, F.TYPE_SINT64))
    two = message_file(("x", 1, F.TYPE_STRING), name="Other")
    two.message_type.add(name="Order").CopyFrom(reader.message_type[0])
    ids = [registered(file) for file in (narrow, wrong, two)]
    body = message_class(narrow)(number=-7, more="x").SerializeToString()
    order = message_class(reader)(id=3, name="a").SerializeToString()
    values: list[bytes | None] = [
        framed(ids[0], b"\x00" + body),
        framed(ids[0], b"\x02\x00" + body),  # a count of one, and index 0
        framed(ids[1], b"\x00" + body),
        framed(ids[2], b"\x02\x02" + order),
        framed(ids[2], b"\x00" + order),
        framed(ids[2], b"\x02\x08" + order),
        framed(ids[2], b""),
    ]
    found, bad = rows(protobuf(reader, framed=True), values, server)
    assert found == [(-7, ""), (-7, ""), (3, "a")]
    assert list(bad) == [2, 4, 5, 6]
    assert "another type" in bad[2]
    assert "a message shop.Other, not shop.Order" in bad[4]
    assert "no message at [4]" in bad[5]


@pytest.mark.parametrize(
    ("value", "indexes"),
    [
        (b"\x00", (0,)),
        (b"\x04\x02\x06", (1, 3)),
        (b"\x04\x02", None),
        (b"\x02\x80", None),
        (b"\x02\x01", None),
        (b"\x01", None),
        (b"\x82\x01" + b"\x00" * 65, None),
        (b"\x80" * 11 + b"\x00", None),
    ],
    ids=["first", "nested", "cut", "cut number", "negative index", "negative count", "too deep", "no end"],
)
def test_places_of_message_types(value: bytes, indexes: tuple[int, ...] | None) -> None:
    found, at = schemas.message_indexes(b"-" + value, 1)
    assert found == indexes
    assert indexes is None or at == 1 + len(value)


def test_json_with_a_frame() -> None:
    table = KafkaTable("t", "t", "json", (Column("a", STRING),), framed=True)
    found, bad = rows(table, [framed(1, b'{"a":"x"}'), b'{"a":"y"}', None, framed(1, b"{"), framed(9, b"{}")])
    assert found == [("x",), (None,), (None,)]
    assert list(bad) == [1, 3]
