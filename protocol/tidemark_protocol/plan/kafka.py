"""Kafka topics as a source: what a replica needs to know of each table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemark_protocol.plan.reader_option import Option
from tidemark_protocol.types import Column
from tidemark_protocol.vocabulary import wire_name


@wire_name("KafkaSchema")
@dataclass(frozen=True)
class KafkaSchema:
    """The reader's schema of values or keys, and where it is found.

    `text`: the schema itself: JSON (Avro), or a FileDescriptorSet in base64 (Protobuf); empty: not pinned yet.
    `secret` or `config_map`, `key`: the entry of a Secret or a ConfigMap that has the text. `subject`, `version`: where
    the registry has it; version 0 is the newest one. `message`: the full name of Protobuf's message.
    """

    text: str = ""
    secret: str = ""
    key: str = ""
    subject: str = ""
    version: int = 0
    message: str = ""
    config_map: str = ""


def pinned_as(schema: KafkaSchema | None, text: str) -> KafkaSchema | None:
    """The schema with the text that was found for it, unless the spec has its text."""
    return schema if schema is None or schema.text else replace(schema, text=text)


@wire_name("KafkaTable")
@dataclass(frozen=True)
class KafkaTable:
    """A table from the records of a topic.

    `columns`: of the value, as `format` gives them: `json`, `text` or `bytes`; `avro` and `protobuf` have `schema`
    instead. `framed`: values begin with a registry's frame, which names the schema of their writer. `metadata`: further
    columns, each with what it holds: `key`, `keyText`, `partition`, `offset`, `timestamp` or `headers`. `start`:
    `earliest`, `latest`, `offsets` (then `start_offsets` has pairs of partition and offset) or `timestamp` (then
    `start_ms`, since 1970). `on_bad_record`: `error`, or `deadLetter` (the table `<name>_dead_letter`). `on_gap`: what
    becomes of the table where records that are needed are gone: `stop`, or `skip`.

    `envelope`: `none` (each record is a row), `upsert` (the newest record of a key is the row, one without a value
    deletes it) or `debezium` (a record is a change of a row upstream). With the latter two the table begins with
    `key_columns`, as `key_format` gives them from the record's key, and no two rows have the same. Of the key's formats
    `avro` and `protobuf` have `key_schema` instead; `key_framed`: keys begin with a registry's frame.

    `added`: names of columns that an earlier table of the name in the spec had not (`successors.py`): this table begins
    with all records of that one. `successor`: so does this one, whose further columns are those of its `schema`,
    or which follows transactions. `marked_in_avro`: it follows transactions by events in Avro.
    """

    name: str
    topic: str
    format: str
    columns: tuple[Column, ...]
    metadata: tuple[Option, ...] = ()
    start: str = "earliest"
    start_offsets: tuple[tuple[int, ...], ...] = ()
    start_ms: int = 0
    on_bad_record: str = "error"
    on_gap: str = "stop"
    envelope: str = "none"
    key_format: str = ""
    key_columns: tuple[Column, ...] = ()
    schema: KafkaSchema | None = None
    framed: bool = False
    key_schema: KafkaSchema | None = None
    key_framed: bool = False
    added: tuple[str, ...] = ()
    successor: bool = False
    marked_in_avro: bool = False


@wire_name("KafkaSource")
@dataclass(frozen=True)
class KafkaSource:
    """Topics of one cluster. `brokers`: `host:port` each. `secret`: names a Secret with settings of the connection;
    empty: none is needed. `group`: the consumer group whose offsets show how far the tables are; empty: none.
    `max_bytes_per_tick`: of keys and values, for each table. `registry`: the URL of a registry of schemas, empty
    without one; `registry_secret`: names a Secret with `username` and `password`, or `token`, and perhaps `ca.crt`.
    `transactions`: the topic of Debezium's transaction metadata, by which tables of envelope `debezium` take whole
    transactions; empty: record by record."""

    brokers: tuple[str, ...]
    tables: tuple[KafkaTable, ...]
    secret: str = ""
    group: str = ""
    max_bytes_per_tick: int = 64 << 20
    registry: str = ""
    registry_secret: str = ""
    transactions: str = ""
