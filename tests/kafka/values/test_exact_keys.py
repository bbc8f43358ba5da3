"""Keys that differ never become one row: what would merge them is refused, or malformed."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from tests.avro.samples import written
from tests.kafka.broker import Broker
from tests.kafka.topics import no_secret, spec_of
from tests.kafka.values.test_kafka_schema_keys import keyed, record
from tidemark_protocol.plan.kafka import KafkaSchema
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.inspect import tables_of
from tidemark_replica.storage.kafka.values import schemas
from tidemark_replica.storage.kafka.values.encodings import key_of
from tidemark_replica.storage.kafka.values.framing import WriterUnfit
from tidemark_replica.storage.schema_registry import RegisteredSchema


def decoder(reader: Any, writer: Any) -> Any:
    encoding = key_of(keyed("T", "avro", KafkaSchema(json.dumps(reader))))
    assert encoding is not None
    return schemas._AvroValues(encoding).of_writer(RegisteredSchema("AVRO", json.dumps(writer)), 1)


def test_symbols_that_the_reader_does_not_have_are_malformed() -> None:
    def region(*symbols: str) -> Any:
        return record(("region", {"type": "enum", "name": "R", "symbols": symbols, "default": "UNKNOWN"}))

    writer = region("UNKNOWN", "EU", "US", "JP")
    (found,), bad = decoder(region("UNKNOWN", "EU"), writer)(
        [written(writer, {"region": each}) for each in ("EU", "US", "JP")]
    )
    assert found.to_pylist()[0] == "EU"
    assert sorted(bad) == [1, 2]


def test_a_bare_key_is_not_read_as_a_record_of_defaults() -> None:
    with pytest.raises(WriterUnfit):
        decoder({**record(("id", "long", 0)), "name": "key"}, "long")


def test_a_timestamp_of_protobuf_is_no_key() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="k.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Key").field.add(
        name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp"
    )
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    text = base64.b64encode(files.SerializeToString()).decode()
    table = keyed("T", "protobuf", KafkaSchema(text, message="Key"))
    with pytest.raises(SourceUnusable, match="a key has no Timestamp"):
        tables_of(spec_of(Broker(Path(), 9), table), no_secret)
