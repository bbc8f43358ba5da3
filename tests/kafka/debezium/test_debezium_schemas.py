"""Rows of change events in Avro whose table upstream got other columns than those of the schema that is pinned."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from tests.kafka.debezium.avro_events import envelope, event_of, nullable
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaTable
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.storage.kafka.by_key.debezium import AvroEvents
from tidemark_replica.storage.kafka.by_key.event_places import EventPlaces
from tidemark_replica.storage.kafka.values.decoding import decoder_of, head_decoder_of
from tidemark_replica.storage.schema_registry import RegisteredSchema, SchemaRegistry

Field = Mapping[str, Any]
ID = {"name": "id", "type": "long"}
LONG, LONG_OR_NULL = {"name": "v", "type": "long"}, nullable("long", "v")
FIVE, FIVE_OR_NULL = LONG | {"default": 5}, {"name": "v", "type": ["long", "null"], "default": 5}


class Writers:
    """A registry of the schemas of writers, whose ids are their positions."""

    def __init__(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        self._schemas = schemas

    def asked_at(self, id: int) -> float:
        return 0.0

    def by_id(self, id: int) -> RegisteredSchema:
        return RegisteredSchema("AVRO", json.dumps(self._schemas[id]))


class Record:
    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def value(self) -> bytes | None:
        return self._value

    def partition(self) -> int:
        return 0


def rows_of(pinned: Sequence[Field], events: Sequence[tuple[Sequence[Field], Mapping[str, Any]]]) -> list[Any]:
    """The rows of one batch of events, each with the fields of its writer and a row. None is malformed."""
    schemas = [envelope(*fields) for fields, _ in events]
    registry = cast(SchemaRegistry, Writers(schemas))
    key = (Column("k", BIGINT),)
    schema = KafkaSchema(json.dumps(envelope(*pinned)))
    table = KafkaTable(
        "t", "t", "avro", (), envelope="debezium", key_format="json", key_columns=key, schema=schema, framed=True
    )
    heads = head_decoder_of(table, registry)
    assert heads is not None
    names = [field["name"] for field in pinned]
    records = [
        Record(event_of(i, schemas[i], {"op": "c", "after": row, "source": {}})) for i, (_, row) in enumerate(events)
    ]
    opened = AvroEvents(decoder_of(table, registry), heads, names, EventPlaces({}))(records)
    assert opened.rows == set(range(len(events))) - opened.bad.keys()
    assert not opened.ignored
    columns = [column.to_pylist() for column in opened.decode(sorted(opened.rows)).columns]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("pinned", [LONG, LONG_OR_NULL])
def test_a_column_that_goes_is_null(pinned: Field) -> None:
    assert rows_of((ID, pinned), [((ID, LONG), {"id": 1, "v": 2}), ((ID,), {"id": 3})]) == [(1, 2), (3, None)]


@pytest.mark.parametrize("pinned", [FIVE, FIVE_OR_NULL])
def test_rows_before_a_column_with_a_default_have_the_default(pinned: Field) -> None:
    """The rows have the default, as upstream, where ALTER TABLE ADD COLUMN writes no events of the rows that are
    there."""
    assert rows_of((ID, pinned), [((ID,), {"id": 1}), ((ID, pinned), {"id": 2, "v": 7})]) == [(1, 5), (2, 7)]


@pytest.mark.parametrize("pinned", [LONG, FIVE])
def test_a_column_may_begin_to_take_null(pinned: Field) -> None:
    events = [((ID, pinned), {"id": 1, "v": 2}), ((ID, LONG_OR_NULL), {"id": 3, "v": None})]
    assert rows_of((ID, pinned), events) == [(1, 2), (3, None)]


@pytest.mark.parametrize("seed", range(20))
def test_oracle_writers_of_one_batch(seed: int) -> None:
    """Random columns come, go, and change whether they take NULL, in one batch; one of the schemas is pinned."""
    draw = random.Random(seed)
    events = []
    for _ in range(draw.randrange(1, 30)):
        fields = [ID, *(random_field(draw, name) for name in draw.sample("abcde", draw.randrange(5)))]
        row = {field["name"]: random_value(draw, field) for field in fields}
        events.append((fields, row))
    pinned = draw.choice(events)[0]
    expected = [tuple(row.get(field["name"], field.get("default")) for field in pinned) for _, row in events]
    assert rows_of(pinned, events) == expected


def random_field(draw: random.Random, name: str) -> dict[str, Any]:
    """A column; those of a name have one type."""
    type, default = ("string", "x") if name in "ab" else ("long", 7)
    field = {"name": name, "type": type}
    forms: list[dict[str, Any]] = [{}, {"default": default}, {"type": ["null", type], "default": None}]
    return field | draw.choice([*forms, {"type": [type, "null"], "default": default}])


def random_value(draw: random.Random, field: Field) -> Any:
    if isinstance(field["type"], list) and draw.random() < 0.4:
        return None
    return str(draw.randrange(9)) if field["name"] in "ab" else draw.randrange(-9, 9)
