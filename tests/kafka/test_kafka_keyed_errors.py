"""Rows by key and the error rows of malformed values, from the shard alone: no broker runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Message

from tidemark_persist import Shard, create_or_open
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage.kafka.by_key.errors import KeyedErrors
from tidemark_replica.storage.kafka.by_key.opened import open_upserts
from tidemark_replica.storage.kafka.by_key.records import KeyedRecords
from tidemark_replica.storage.kafka.rows import columns_of
from tidemark_replica.storage.kafka.values.decoding import decoder_of, key_decoder_of
from tidemark_replica.storage.update_rows import error_rows
from tidemark_replica.values.arrow_types import arrow_schema

SCHEMA = pa.schema([("id", pa.int64())])
KEY = [pa.array([1], pa.int64())]


def test_a_tick_without_records_asks_the_shard_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, value = (Column("key", STRING),), (Column("value", STRING),)
    table = KafkaTable("t", "t", "text", value, envelope="upsert", key_format="text", key_columns=key)
    schema = arrow_schema(columns_of(table))
    shard = create_or_open(str(tmp_path / "t"), schema, shard_id="t")
    key_decoder = key_decoder_of(table)
    assert key_decoder is not None
    keyed = KeyedRecords(table, schema, key_decoder, shard)
    monkeypatch.setattr(shard, "refresh", lambda: pytest.fail("the shard was asked"))
    assert list(keyed.made(Time(1), open_upserts(decoder_of(table)), 10).updates([])) == []
    keyed.bound(2)
    monkeypatch.undo()
    record = Message(topic="t", partition=0, offset=0, key=b"k", value=b"v")
    (batch,) = keyed.made(Time(2), open_upserts(decoder_of(table)), 10).updates([[record]])
    assert batch.select(["key", "value"]).to_pylist() == [{"key": "k", "value": "v"}]
    keyed.close()


def append(shard: Shard, time: int, texts: list[str]) -> None:
    rows = pa.Table.from_batches([error_rows(SCHEMA, time, pa.array(texts, pa.string()))])
    shard.compare_and_append(rows, expected_upper=time, new_upper=time + 1, term=1)


def test_an_error_of_before_goes_although_the_table_stood_still_first(tmp_path: Path) -> None:
    """Another process confirms a binding of a table that it has not read, and then its key is written again."""
    shard = create_or_open(str(tmp_path / "t"), SCHEMA, shard_id="t")
    first = KeyedErrors(shard)
    first.refresh()
    first.add(KEY, ["t/0@0"])
    ((text, diff),) = first.updates()
    assert diff == 1
    append(shard, 0, [text])
    second = KeyedErrors(shard)
    append(shard, 1, [])
    second.bound(2)
    second.refresh()
    second.add(KEY, [None])
    assert second.updates() == [(text, -1)]
