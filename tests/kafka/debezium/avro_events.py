"""Change events of Debezium as converters of Kafka Connect write them in Avro, by fastavro: the shapes of their schemas
are those of Confluent's and of Apicurio's converter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.avro.samples import written
from tests.schema_registry.registry import framed

Event = Mapping[str, Any]
"""An event as it is in JSON. `after` has values as Avro has them."""
DATE = {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}
MICROS = {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}
ZONED = {"type": "string", "connect.version": 1, "connect.name": "io.debezium.time.ZonedTimestamp"}
COLLECTION = {
    "type": "record",
    "name": "collection",
    "namespace": "event",
    "fields": [{"name": "data_collection", "type": "string"}, {"name": "event_count", "type": "long"}],
}
"""The number of events of one table, in the END of a transaction."""
_SNAPSHOT = {
    "type": "string",
    "connect.version": 1,
    "connect.default": "false",
    "connect.name": "io.debezium.data.Enum",
}


def nullable(type: Any, name: str, default: Any = None) -> dict[str, Any]:
    """A field that may be null."""
    return {"name": name, "type": ["null", type], "default": default}


def amount(precision: int = 12, scale: int = 2) -> dict[str, Any]:
    """Connect's Decimal."""
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    named = {
        "connect.version": 1,
        "connect.parameters": parameters,
        "connect.name": "org.apache.kafka.connect.data.Decimal",
    }
    return {"type": "bytes", "scale": scale, "precision": precision, "logicalType": "decimal"} | named


def record(name: str, *fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), "connect.name": name} | more


_COMMON = (
    *({"name": name, "type": "string"} for name in ("version", "connector", "name")),
    {"name": "ts_ms", "type": "long"},
    {"name": "snapshot", "type": [_SNAPSHOT, "null"], "default": "false"},
    {"name": "db", "type": "string"},
    nullable("string", "sequence"),
    nullable("long", "ts_us"),
)
_POSTGRESQL = (
    *({"name": name, "type": "string"} for name in ("schema", "table")),
    *(nullable("long", name) for name in ("txId", "lsn", "xmin")),
)
_MYSQL = (
    nullable("string", "table"),
    {"name": "server_id", "type": "long"},
    nullable("string", "gtid"),
    {"name": "file", "type": "string"},
    {"name": "pos", "type": "long"},
    {"name": "row", "type": "int"},
    nullable("long", "thread"),
)
_ORDERS = ({"name": name, "type": "long"} for name in ("total_order", "data_collection_order"))
_BLOCK = record("block", {"name": "id", "type": "string"}, *_ORDERS, namespace="event")


def envelope(*row: Mapping[str, Any], connector: str = "postgresql", table: str = "shop.public.t") -> dict[str, Any]:
    """The schema of the events of a table. `row`: the fields of its rows."""
    fields = _COMMON + (_MYSQL if connector in ("mysql", "mariadb") else _POSTGRESQL)
    source = record("Source", *fields, namespace=f"io.debezium.connector.{connector}")
    return record(
        "Envelope",
        nullable(record("Value", *row), "before"),
        nullable("Value", "after"),
        {"name": "source", "type": source},
        nullable(_BLOCK, "transaction"),
        {"name": "op", "type": "string"},
        nullable("long", "ts_ms"),
        namespace=table,
    )


def body(schema: Mapping[str, Any], event: Event) -> bytes:
    """An event without a frame. Members that the schema lacks are left out; those that JSON lacks are empty."""
    row = schema["fields"][0]["type"][1]
    rows = {name: None if event.get(name) is None else _filled(row, event[name]) for name in ("before", "after")}
    return written(schema, _filled(schema, {**event, **rows}))


def event_of(id: int, schema: Mapping[str, Any], event: Event | None) -> bytes | None:
    """A record's value; `id`: of the schema in a registry."""
    return None if event is None else framed(id, body(schema, event))


def _filled(schema: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    return {each["name"]: _value(each["type"], value.get(each["name"])) for each in schema["fields"]}


def _value(type: Any, value: Any) -> Any:
    if isinstance(type, list):
        if value is None and "null" in type:
            return None
        return _value(next(each for each in type if each != "null"), value)
    if isinstance(type, dict) and type["type"] == "record":
        return _filled(type, value or {})
    if value is not None:
        return value
    return "" if "string" in (type, type["type"] if isinstance(type, dict) else "") else 0
