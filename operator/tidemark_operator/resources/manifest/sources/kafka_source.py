"""A kafka source: its brokers, and a topic for each table."""

from __future__ import annotations

from datetime import datetime

from tidemark_operator.resources.manifest.columns import parse_columns
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.plan.reader_option import Option
from tidemark_protocol.types import STRING, Column, SqlType

MAX_BYTES_PER_TICK = 64 << 20
_PLAIN = {"text": STRING, "bytes": SqlType("binary")}
_WITH_SCHEMA = ("avro", "protobuf")


def parse_kafka(fields: Fields) -> KafkaSource:
    """The source of `spec.kafka`."""
    registry = fields.child("registry") if fields.has("registry") else None
    follows = fields.has("transactions")
    return KafkaSource(
        brokers=fields.texts("brokers"),
        tables=tuple(_table(table, registry is not None, follows) for table in fields.children("tables")),
        secret=fields.text("secret", ""),
        group=fields.text("group", ""),
        max_bytes_per_tick=fields.integer("maxBytesPerTick", MAX_BYTES_PER_TICK),
        registry=registry.text("url") if registry is not None else "",
        registry_secret=registry.text("secret", "") if registry is not None else "",
        transactions=fields.child("transactions").text("topic") if fields.has("transactions") else "",
    )


def _table(fields: Fields, has_registry: bool, follows_transactions: bool) -> KafkaTable:
    format, columns = _form(fields, "value")
    key = fields.child("key") if fields.has("key") else None
    key_format, key_columns = _form(key, "key") if key is not None else ("", ())
    for column in key_columns:
        if not column.type.is_key_type:
            reason = "a key has no floating numbers, arrays or structs"
            raise InvalidValue(fields.at("key"), f"{column.name!r} is {column.type}: {reason}")
    metadata = tuple(fields.children("metadata")) if fields.has("metadata") else ()
    names = {column.name.lower() for column in key_columns}
    named = [(fields.at("columns"), column.name) for column in columns]
    for at, name in [*named, *((column.at("name"), column.text("name")) for column in metadata)]:
        if name.lower() in names:
            raise InvalidValue(at, f"{name!r} is there already; SQL ignores upper and lower case")
        names.add(name.lower())
    envelope = fields.text("envelope", "none")
    start, offsets, ms = _start(fields.child("start") if fields.has("start") else None)
    return KafkaTable(
        name=fields.text("name"),
        topic=fields.text("topic"),
        format=format,
        columns=columns,
        metadata=tuple(Option(column.text("name"), column.text("from")) for column in metadata),
        start=start,
        start_offsets=offsets,
        start_ms=ms,
        on_bad_record=fields.text("onBadRecord", "error"),
        on_gap=fields.text("onGap", "stop"),
        envelope=envelope,
        key_format=key_format,
        key_columns=key_columns,
        schema=_schema(fields),
        framed=_framed(fields, has_registry),
        key_schema=_schema(key) if key is not None else None,
        key_framed=key is not None and _framed(key, has_registry),
        marked_in_avro=follows_transactions and envelope == "debezium" and format == "avro",
    )


def _framed(fields: Fields, has_registry: bool) -> bool:
    return fields.flag("framed", has_registry and fields.has("schema"))


def _schema(form: Fields) -> KafkaSchema | None:
    """The schema of values or of keys, or where it is; None where they have none."""
    if not form.has("schema"):
        return None
    fields = form.child("schema")
    secret, config_map = (fields.child(name) if fields.has(name) else None for name in ("secret", "configMap"))
    entry = secret or config_map
    return KafkaSchema(
        text=fields.text("inline", ""),
        secret=secret.text("name") if secret is not None else "",
        config_map=config_map.text("name") if config_map is not None else "",
        key=entry.text("key") if entry is not None else "",
        subject=fields.text("subject", ""),
        version=fields.integer("version", 0),
        message=fields.text("message", ""),
    )


def _form(fields: Fields, name: str) -> tuple[str, tuple[Column, ...]]:
    """The format of a value or a key, and its columns; `name`: of the column of a text or of bytes."""
    format = fields.text("format")
    if format in _WITH_SCHEMA:
        return format, ()
    return format, (Column(name, _PLAIN[format]),) if format in _PLAIN else parse_columns(fields)


def _start(fields: Fields | None) -> tuple[str, tuple[tuple[int, ...], ...], int]:
    """Where it begins, and for that the offsets by partition, or the time in milliseconds."""
    if fields is None:
        return "earliest", (), 0
    if fields.has("offsets"):
        pairs = tuple((pair.integer("partition"), pair.integer("offset")) for pair in fields.children("offsets"))
        return "offsets", pairs, 0
    if fields.has("timestamp"):
        text = fields.text("timestamp")
        try:
            return "timestamp", (), int(datetime.fromisoformat(text).timestamp() * 1000)
        except ValueError:
            raise InvalidValue(fields.at("timestamp"), f"{text!r} is not a time such as 2026-01-31T12:00:00Z") from None
    return fields.text("at", "earliest"), (), 0
