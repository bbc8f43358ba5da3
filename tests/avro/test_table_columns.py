"""Files of several writers become the columns of one table, by names and by Avro's widening of types."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pytest

from tests.avro.containers import container, peers_rows, read_pieces
from tests.avro.samples import Schemas, value_of
from tests.avro.test_avro_bodies import expected
from tests.avro.test_container_files import counted
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.avro.resolution import BodyDecoder, Incompatible
from tidemark_replica.storage.avro.schema import SchemaRefused, parse_schema
from tidemark_replica.storage.avro.sql_types import columns_of_record
from tidemark_replica.storage.avro.table_columns import reader_of

FIXED = {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
INNER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def record(type: Any, name: str = "v") -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}, {"name": name, "type": type}]}


def columns(type: str) -> tuple[Column, ...]:
    return (Column("v", SqlType.parse(type)),)


FITS: list[tuple[Any, str, Any]] = [
    ("int", "int", "int"),
    ("int", "bigint", "long"),
    ("int", "float", "float"),
    ("int", "double", "double"),
    ("long", "double", "double"),
    ("float", "double", "double"),
    ("string", "binary", "bytes"),
    ("bytes", "string", "string"),
    (["null", "int"], "bigint", ["null", "long"]),
    (["string", "null"], "string", ["null", "string"]),
    ({"type": "array", "items": ["null", "int"]}, "array<bigint>", {"type": "array", "items": ["null", "long"]}),
    (INNER, "struct<x:bigint>", {**INNER, "fields": [{"name": "x", "type": "long"}]}),
    (
        INNER,
        "struct<y:string,x:int>",
        {**INNER, "fields": [{"name": "y", "type": "string"}, {"name": "x", "type": "int"}]},
    ),
    (ENUM, "string", ENUM),
]
VALUES = {"int": [-5, 1 << 30], "long": [2**62], "float": [0.5], "string": ["größe"], "bytes": ["ü".encode()]}


def values_of(type: Any) -> list[Any]:
    if isinstance(type, list):
        (inner,) = [each for each in type if each != "null"]
        return [None, *values_of(inner)]
    if type is ENUM:
        return ["A", "B"]
    if type is INNER:
        return [{"x": 7, "y": "z"}]
    return [[], values_of(type["items"])] if isinstance(type, dict) else VALUES[type]


@pytest.mark.parametrize(("writer", "sql", "reader"), FITS)
def test_values_are_those_that_the_peer_reads_with_the_readers_schema(writer: Any, sql: str, reader: Any) -> None:
    """Widened, in another order, and without what no column has."""
    file = container(record(writer), [{"k": "x", "v": value} for value in values_of(writer)])
    expected = [row["v"] for row in fastavro.reader(io.BytesIO(file), {**record(reader), "fields": [
        {"name": "v", "type": reader}]})]  # fmt: skip
    written = parse_schema(json.dumps(record(writer)))
    taken = reader_of(written, columns(sql))
    assert [each.type for each in columns_of_record(taken)] == [SqlType.parse(sql)]
    rows = read_pieces(file, reader=taken)[0]
    assert sorted((row["v"] for row in rows), key=repr) == sorted(expected, key=repr)


UNFIT: list[tuple[Any, str]] = [
    ("long", "int"),
    ("double", "float"),
    ("string", "int"),
    ("int", "smallint"),
    ("int", "decimal(10,0)"),
    (MILLIS, "bigint"),
    ("long", "timestamp"),
    ({"type": "int", "logicalType": "date"}, "bigint"),
    (FIXED, "decimal(9,3)"),
    (FIXED, "decimal(10,2)"),
    ({"type": "map", "values": "int"}, "int"),
    (["int", "string"], "int"),
    ("null", "int"),
    (INNER, "struct<x:int,z:int>"),
    (INNER, "int"),
    ("int", "struct<x:int>"),
    ({"type": "array", "items": "long"}, "array<int>"),
]


@pytest.mark.parametrize(("writer", "sql"), UNFIT)
def test_what_would_be_another_value_is_refused(writer: Any, sql: str) -> None:
    """With the place in its schema."""
    with pytest.raises(Incompatible, match=r"\$\.v"):
        reader_of(parse_schema(json.dumps(record(writer))), columns(sql))


def test_each_type_of_sql_is_its_own() -> None:
    """The columns that are inferred of a file can be read of it."""
    types: list[Any] = ["boolean", "double", MILLIS, FIXED, {"type": "long", "logicalType": "local-timestamp-micros"}]
    for type in (*types, ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}]):
        writer = parse_schema(json.dumps(record(type)))
        found = columns_of_record(writer)
        assert columns_of_record(reader_of(writer, found)) == found
        BodyDecoder(writer, reader_of(writer, found))


def test_a_missing_field_and_no_record() -> None:
    with pytest.raises(Incompatible, match="there is no field v"):
        reader_of(parse_schema(json.dumps(record("int", "V"))), columns("int"))
    with pytest.raises(Incompatible, match="a table needs records"):
        reader_of(parse_schema('"int"'), columns("int"))


@pytest.mark.parametrize("seed", range(30))
def test_random_columns_of_random_writers(seed: int) -> None:
    """Some of the fields, in another order, by the peer with a reader's schema of these."""
    rng = random.Random(seed)
    schema = Schemas(rng).record()
    fields = rng.sample(schema["fields"], rng.randint(1, len(schema["fields"])))
    file = container(schema, [value_of(schema, rng) for _ in range(30)], block_bytes=rng.choice([1, 200]))
    writer = parse_schema(json.dumps(schema))
    types = {each.name: each.type for each in columns_of_record(writer)}
    chosen = tuple(Column(field["name"], types[field["name"]]) for field in fields)
    rows, malformed = read_pieces(file, rng.choice([100, 1 << 62]), reader_of(writer, chosen))
    expected_rows = [
        {field["name"]: expected(field["type"], row[field["name"]]) for field in fields} for row in peers_rows(file)
    ]
    assert malformed == 0
    assert [list(row) for row in rows] == [[column.name for column in chosen]] * len(rows)
    assert counted(rows) == counted(expected_rows)


def test_types_do_not_nest_deeper_by_their_names() -> None:
    """Each record has the one before it by its name; a reader of such a schema would run out of stack."""
    fields: list[dict[str, Any]] = [{"name": "x", "type": {"type": "record", "name": "A0", "fields": []}}]
    for n in range(1, 120):
        inner = {"name": "v", "type": {"type": "array", "items": f"A{n - 1}"}}
        fields.append({"name": f"x{n}", "type": {"type": "record", "name": f"A{n}", "fields": [inner]}})
    whole = {"type": "record", "name": "R", "fields": [*fields[:30], {"name": "v", "type": "int"}]}
    parse_schema(json.dumps(whole))
    with pytest.raises(SchemaRefused, match=r"nests deeper than 64, with the types that names stand for"):
        parse_schema(json.dumps({**whole, "fields": fields}))
