"""The Avro of the Kafka sink: fastavro, and the decoder of the Kafka source, read what was written."""

from __future__ import annotations

import datetime
import json
import random
import struct
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.avro.samples import read, written
from tests.kafka.sink.test_kafka_sink_json import TYPES
from tidemark_persist import DIFF
from tidemark_protocol.ids import Time
from tidemark_protocol.types import SqlType
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka import avro_bodies
from tidemark_replica.sinks.kafka.avro_schema import key_schema, value_schema
from tidemark_replica.sinks.kafka.envelopes import Envelope
from tidemark_replica.sinks.kafka.record_formats import AvroFormat
from tidemark_replica.storage.avro.resolution import BodyDecoder
from tidemark_replica.storage.avro.schema import parse_schema
from tidemark_replica.values.arrow_types import arrow_type

EXACT = Context(prec=60)
AVRO_TYPES = {
    **{name: values for name, values in TYPES.items() if '"' not in name},
    "tinyint": st.integers(-128, 127),
    "int": st.integers(-(2**31), 2**31 - 1),
    "double": st.floats(),
    "float": st.floats(width=32),
    "struct<a:struct<b:int,c:array<struct<d:string>>>,e:decimal(38,6)>": st.fixed_dictionaries(
        {
            "a": st.none()
            | st.fixed_dictionaries(
                {
                    "b": st.none() | st.integers(-9, 9),
                    "c": st.none()
                    | st.lists(st.none() | st.fixed_dictionaries({"d": st.none() | st.text()}), max_size=3),
                }
            ),
            "e": st.none() | st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-6, EXACT)),
        }
    ),
}
UTC_EPOCH, EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), datetime.datetime(1970, 1, 1)
BITS = [bits for bits in range(126) if bits % 8 in (0, 7)]
MICROSECOND = datetime.timedelta(microseconds=1)


def plain(type: SqlType, value: Any) -> Any:
    """The value as what its logical type annotates."""
    if value is None:
        return None
    if type.is_decimal:
        number = int(value.scaleb(type.scale, EXACT))
        return next(
            number.to_bytes(size, "big", signed=True)
            for size in range(1, 17)
            if -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1
        )
    if type.is_array:
        return [plain(type.element, each) for each in value]
    if type.is_struct:
        return {name: plain(each, value[name]) for name, each in type.fields}
    if type.name == "date":
        return value.toordinal() - EPOCH.toordinal()
    if type.name in ("timestamp", "timestamp_ntz"):
        return (value - (UTC_EPOCH if value.tzinfo else EPOCH)) // MICROSECOND
    return float(np.float32(value)) if type.name == "float" else value


@given(st.data())
def test_agree_with_fastavro_and_with_the_source(data: st.DataObject) -> None:
    """fastavro writes the same bytes, and reads the values; the source's decoder gives the same columns."""
    names = data.draw(st.lists(st.sampled_from(sorted(AVRO_TYPES)), min_size=1, max_size=4))
    types = [SqlType.parse(name) for name in names]
    count = data.draw(st.integers(0, 8))
    values = [[data.draw(st.none() | AVRO_TYPES[name]) for _ in range(count)] for name in names]
    begin = data.draw(st.integers(0, count))
    columns = [pa.array(given, arrow_type(type)).slice(begin) for given, type in zip(values, types, strict=True)]
    schema = pa.schema([pa.field(f"c{i}", column.type) for i, column in enumerate(columns)])
    text = value_schema("t", schema, is_event=False)
    bodies = avro_bodies.bodies(columns).to_pylist()
    assert len(bodies) == count - begin
    for row, body in enumerate(bodies, begin):
        value = {f"c{i}": plain(type, values[i][row]) for i, type in enumerate(types)}
        assert body == written(json.loads(text), value)
        assert repr(read(body, json.loads(text))) == repr(value)
    if bodies:
        decoded, bad = BodyDecoder(parse_schema(text), parse_schema(text))(bodies)
        assert not bad
        for found, given in zip(decoded, columns, strict=True):
            wider = given.cast(pa.int32()) if pa.types.is_integer(given.type) and given.type.bit_width < 32 else given
            assert repr(found.to_pylist()) == repr(wider.to_pylist())


@pytest.mark.parametrize("at_once", [5, 1 << 15])
def test_extremes_and_many_rows(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of all lengths of a number, of a decimal and of a text; the pieces of a batch."""
    monkeypatch.setattr(avro_bodies, "ROWS_AT_ONCE", at_once)
    edges = [sign * (1 << bits) + less for bits in range(63) for sign in (1, -1) for less in (-1, 0)]
    longs = [None, *edges, 2**63 - 1, -(2**63)]
    decimals = [Decimal(sign * (1 << bits) + less) for bits in BITS for sign in (1, -1) for less in (-1, 0)]
    decimals += [Decimal(10**38 - 1), Decimal(1 - 10**38)]
    texts = ["x" * length for length in (0, 1, 63, 64, 8191, 8192)]
    count = len(decimals)
    rows: dict[str, list[Any]] = {
        "n": [longs[i % len(longs)] for i in range(count)],
        "d": decimals,
        "t": [texts[i % 6] for i in range(count)],
        "a": [None if i % 7 == 0 else list(range(i % 70)) for i in range(count)],
        "z": [None] * count,
    }
    kinds = ["bigint", "decimal(38,0)", "string", "array<int>", "struct<a:bigint>"]
    schema = pa.schema([pa.field(n, arrow_type(SqlType.parse(k))) for n, k in zip(rows, kinds, strict=True)])
    table = pa.table(rows, schema)
    columns = [column.combine_chunks() for column in table.columns]
    text = value_schema("t", schema, is_event=False)
    bodies = avro_bodies.bodies(columns).to_pylist()
    decoded, bad = BodyDecoder(parse_schema(text), parse_schema(text))(bodies)
    assert not bad
    assert [column.to_pylist() for column in decoded] == [column.to_pylist() for column in columns]
    for i in random.Random(1).sample(range(count), 50):
        value = {name: plain(SqlType.parse(k), rows[name][i]) for name, k in zip(rows, kinds, strict=True)}
        assert bodies[i] == written(json.loads(text), value)


def test_dates_beyond_the_year_9999_are_written() -> None:
    column = pa.array([2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32())
    text = json.loads(value_schema("t", pa.schema([("d", pa.date32())]), is_event=False))
    assert [read(body, text) for body in avro_bodies.bodies([column]).to_pylist()] == [
        {"d": 2**31 - 1},
        {"d": -(2**31)},
    ]


def test_events_have_both_rows() -> None:
    columns = pa.schema([("k", pa.int64()), ("v", pa.struct([("x", pa.string())]))])
    key, value = key_schema("a.b-c", columns, ["k"]), json.loads(value_schema("a.b-c", columns, is_event=True))
    assert value["namespace"] == "a.b_c"
    one, other = {"k": 1, "v": {"x": "a"}}, {"k": 1, "v": None}
    lost, new = {"k": 2, "v": {"x": None}}, {"k": None, "v": None}
    changes = pa.table(
        {name: [row[name] for row in (one, other, lost, new)] for name in columns.names} | {DIFF: [-1, 1, -1, 1]},
        pa.schema([*columns, (DIFF, pa.int64())]),
    )
    records = Envelope("debezium", ("k",), AvroFormat(7, 1 << 20)).records(changes, Time(1_700_000_000_000))
    found = []
    for record_key, record in records.pairs():
        assert record_key[:5] == struct.pack(">bI", 0, 7)
        assert record is None or record[:5] == struct.pack(">bI", 0, 1 << 20)
        event = None if record is None else read(record[5:], value)
        found.append((read(record_key[5:], json.loads(key))["k"], event))
    at = {"ts_ms": 1_700_000_000_000}
    assert found == [
        (1, {"before": one, "after": other, "op": "u", **at}),
        (None, {"before": None, "after": new, "op": "c", **at}),
        (2, {"before": lost, "after": None, "op": "d", **at}),
        (2, None),
    ]


def test_names_of_records_differ() -> None:
    inner = pa.struct([("b", pa.int32())])
    columns = pa.schema([("a_b", inner), ("a", pa.struct([("b", inner)])), ("c", pa.list_(inner))])
    text = value_schema("1..x", columns, is_event=True)
    parse_schema(text)
    names = ["Value_a_b", "Value_a", "Value_a_b_2", "Value_c"]
    assert [name for name in names if f'"name":"{name}"' in text] == names
    assert json.loads(text)["namespace"] == "_1._.x"


@pytest.mark.parametrize(
    ("type", "name", "named"),
    [
        (pa.int32(), "größe", "gr"),
        (pa.int32(), "count(1)", "count"),
        (pa.int32(), "1a", "1a"),
        (pa.list_(pa.struct([("a b", pa.int32())])), "v", "'a b'"),
        (pa.map_(pa.string(), pa.string()), "v", "column v"),
    ],
)
def test_columns_that_avro_has_not_are_refused_by_name(type: pa.DataType, name: str, named: str) -> None:
    with pytest.raises(DestinationStopped, match=named) as raised:
        value_schema("t", pa.schema([(name, type)]), is_event=False)
    assert raised.value.reason == "SchemaUnfit"


def test_equal_keys_have_equal_bytes_and_others_differ() -> None:
    keys = pa.table({"a": [None, "", "a", "a", None], "b": [1, 1, None, 1, 1]})
    bytes_of = Envelope("upsert", ("a", "b"), AvroFormat(1, 2)).keys(keys)
    assert pc.count_distinct(bytes_of).as_py() == 4
    assert bytes_of[0] == bytes_of[4]
