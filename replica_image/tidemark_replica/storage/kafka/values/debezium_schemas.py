"""Schemas of Avro for change events of Debezium, as converters of Kafka Connect write them.

    Envelope   before, after: null or a record, the row        the table's columns are those of after
               op, source {connector, name, db, ...}           read by names that are known, whatever else is there

The schema of an event is pinned for the record in `after` alone. Connectors write others around it, and newer ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark_replica.storage.avro.resolution import Incompatible
from tidemark_replica.storage.avro.schema import AvroField, AvroType, SchemaRefused
from tidemark_replica.storage.avro.sql_types import present_branch

OP, SOURCE, AFTER = range(3)
"""The columns of decoded events; their heads have the first two."""
CONNECT_NAMES = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    "io.debezium.time.IsoDate": "iso-date",
    "io.debezium.time.IsoTimestamp": "iso-local-timestamp",
    "io.debezium.time.ZonedTimestamp": "iso-timestamp",
    "org.apache.kafka.connect.data.Timestamp": "local-timestamp-millis",
    "org.apache.kafka.connect.data.Decimal": "decimal",
}
"""The logical types of the names of types (`connect.name`) that have a counterpart. Debezium writes Connect's own
Timestamp (`time.precision.mode: connect`) for what has no zone in the database."""


def _or_null(kind: str) -> AvroType:
    return AvroType("union", children=(AvroType("null"), AvroType(kind)))


_TEXT, _LONG = _or_null("string"), _or_null("long")
_SOURCE: Mapping[str, AvroType] = {
    **dict.fromkeys(("connector", "name", "db", "gtid", "sequence", "file"), _TEXT),
    **dict.fromkeys(("ts_ms", "server_id", "pos", "row"), _LONG),
}
"""The fields of a source that say which place of a log an event is of."""


def row_of(envelope: AvroType) -> AvroType:
    """The record in the envelope's field `after`. Each of its fields may be null, and is where a writer lacks it, if
    the schema has no default for it: columns upstream come and go, and begin to take NULL. Raises SchemaRefused."""
    after = _field(envelope, "after")
    if after is None:
        needs = "a change event of Debezium is a record with the fields op, source and after"
        raise SchemaRefused(f"$: the schema is of type {envelope}: {needs}")
    row = present_branch(after, "$.after") if after.kind == "union" else after
    if row.kind != "record" or not row.fields:
        raise SchemaRefused(f"$.after: its type is {row}, and not a record with fields")
    fields = tuple(each if each.has_default else replace(each, has_default=True) for each in row.fields)
    return replace(row, fields=tuple(replace(each, type=_nullable(each.type)) for each in fields))


EVENT_WRITER = AvroType("record", fields=(AvroField("op", AvroType("string")),))
"""An event with the least that one has."""
BOUNDARY_WRITER = AvroType("record", fields=(AvroField("status", AvroType("string")),))
"""A record of the topic of transactions with the least that one has."""
_MARKED = ("connector", "schema", "table", "sequence")


def mark_reader(writer: AvroType) -> AvroType:
    """The schema that reads the marks of a writer's events: OP, SOURCE, and the block of the transaction. Raises
    Incompatible."""
    source = AvroType("record", fields=tuple(_optional(name, _TEXT) for name in _MARKED))
    block = AvroType("record", fields=(_optional("id", _TEXT), _optional("data_collection_order", _LONG)))
    return _event_reader(writer, [("source", source), ("transaction", block)])


def boundary_reader(writer: AvroType) -> AvroType:
    """The schema that reads a writer's records of the topic of transactions. Raises Incompatible."""
    if writer.kind != "record" or _field(writer, "status") is None:
        raise Incompatible(f"$: it is of type {writer}, and no BEGIN or END: it has no field status")
    collections = _field(writer, "data_collections")
    branches = () if collections is None else (collections, *collections.children)
    items = next((each.children[0] for each in branches if each.kind == "array"), None)
    fields = (_optional("data_collection", _TEXT), _optional("event_count", _LONG))
    count = AvroType("record", "" if items is None else items.name, fields=fields)
    counts = AvroType("union", children=(AvroType("null"), AvroType("array", children=(count,))))
    found = (("status", _TEXT), ("id", _TEXT), ("ts_ms", _LONG), ("data_collections", counts))
    return AvroType("record", writer.name, fields=tuple(_optional(each, type) for each, type in found))


def reader_of(writer: AvroType, row: AvroType | None) -> AvroType:
    """The schema that reads a writer's events: OP, SOURCE, AFTER. `row`: the reader's record of `after`; its name is of
    no account, nor are those of the event and its source. Without one the heads of events: OP, SOURCE. Raises
    Incompatible."""
    source = AvroType("record", fields=tuple(_optional(each, type) for each, type in _SOURCE.items()))
    return _event_reader(writer, [("source", source), *([] if row is None else [("after", row)])])


def _event_reader(writer: AvroType, records: Sequence[tuple[str, AvroType]]) -> AvroType:
    """The schema that reads OP and these records of a writer's events. Raises Incompatible."""
    if writer.kind != "record" or _field(writer, "op") is None:
        raise Incompatible(f"$: it is of type {writer}, and no change event of Debezium: it has no field op")
    named = [(name, replace(type, name=_name_in(writer, name))) for name, type in records]
    found = [("op", _TEXT), *((name, _nullable(type)) for name, type in named)]
    return AvroType("record", writer.name, fields=tuple(_optional(each, type) for each, type in found))


def _field(record: AvroType, name: str) -> AvroType | None:
    return next((each.type for each in record.fields if each.name == name), None)


def _name_in(writer: AvroType, field: str) -> str:
    """The name of the record that the writer's field has, or may have; empty without one."""
    type = _field(writer, field)
    branches = () if type is None else (type, *type.children)
    return next((each.name for each in branches if each.kind == "record"), "")


def _nullable(type: AvroType) -> AvroType:
    branches = type.children if type.kind == "union" else (type,)
    null = () if any(branch.kind == "null" for branch in branches) else (AvroType("null"),)
    return AvroType("union", children=(*null, *branches))


def _optional(name: str, type: AvroType) -> AvroField:
    return AvroField(name, type, default=None, has_default=True)
