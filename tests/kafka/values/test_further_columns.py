"""Further columns of a schema are taken only where the records of before keep their values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kafka.debezium.avro_events import envelope, nullable
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaTable
from tidemark_replica.storage.kafka.values.further_columns import _avro_misfit

ID = {"name": "id", "type": "long"}
VIP = {"name": "vip", "type": ["null", "string"], "default": None}
EVENTS = {"envelope": "debezium", "key_format": "text"}


def field(kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": "s", "type": kind, **more}


def enum(*symbols: str) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols)}


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


def misfit(before: str, now: str, **options: Any) -> str:
    def table(text: str) -> KafkaTable:
        return KafkaTable("t", "topic", "avro", (), schema=KafkaSchema(text=text), framed=True, **options)

    return _avro_misfit(table(before), table(now))


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (field("string"), field("string"), ""),
        (field("string"), field(["null", "string"]), ""),
        (field(enum("A")), field(enum("A", "B")), ""),
        (field("string", default="x"), field("string", default="x"), ""),
        (field("string"), field("string", default="x"), ""),
        (field(["null", "string"]), field("string"), "null is not read any more"),
        (field(["null", "string"]), field(["string"]), "null is not read any more"),
        (field(enum("A", "B")), field(enum("A")), "a symbol is gone"),
        (field("string", default="x"), field("string"), "the default"),
        (field("string", default="x"), field("string", default="y"), "the default"),
        (
            field({"type": "array", "items": ["null", "long"]}),
            field({"type": "array", "items": "long"}),
            "$.s[]: null is not read any more",
        ),
    ],
)
def test_a_schema_that_reads_less_is_refused(before: dict[str, Any], now: dict[str, Any], why: str) -> None:
    found = misfit(record(ID, before), record(ID, now, VIP))
    assert why in found
    assert bool(why) == bool(found)


def test_rows_of_events_are_compared_alike() -> None:
    before = {"name": "state", "type": "string", "default": "new"}
    further = nullable("string", "vip")
    assert misfit(json.dumps(envelope(ID, before)), json.dumps(envelope(ID, before, further)), **EVENTS) == ""
    without = {"name": "state", "type": "string"}
    assert "the default" in misfit(
        json.dumps(envelope(ID, before)), json.dumps(envelope(ID, without, further)), **EVENTS
    )
