"""The JSON of the Kafka sink: Python's own reader, and the Kafka source's, read what was written."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark_protocol.types import Column, SqlType
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.json_text import objects, texts
from tidemark_replica.storage.kafka.values.json_values import JsonValues
from tidemark_replica.values.arrow_types import arrow_type

TYPES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "decimal(30,12)": st.integers(-(10**30) + 1, 10**30 - 1).map(lambda n: Decimal(n).scaleb(-12)),
    "string": st.text(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(datetime.UTC)),
    "timestamp_ntz": st.datetimes(),
    "array<string>": st.lists(st.none() | st.text()),
    "array<array<bigint>>": st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9))),
    'struct<a:bigint,`b "c`:string>': st.fixed_dictionaries(
        {"a": st.none() | st.integers(-9, 9), 'b "c': st.none() | st.text()}
    ),
}


@given(st.data())
def test_agree_what_is_written_is_read_as_it_was(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TYPES)))
    type = SqlType.parse(name)
    values = data.draw(st.lists(st.none() | TYPES[name], max_size=8))
    column = pa.array(values, arrow_type(type))
    begin = data.draw(st.integers(0, len(values)))
    written = objects(["v", 'n"\n'], [column.slice(begin), pa.array(range(len(values) - begin), pa.int64())])
    for text, number in zip(written.to_pylist(), range(len(values)), strict=False):
        assert list(json.loads(text)) == ["v", 'n"\n']
        assert json.loads(text)['n"\n'] == number
    reader = JsonValues([Column("v", type)])
    if len(values) > begin:
        [read] = reader.columns([text.encode() for text in written.to_pylist()])
        assert read.equals(column.slice(begin))


def test_values_have_the_documented_texts() -> None:
    cases: list[tuple[str, Any, str]] = [
        ("double", float("nan"), '"NaN"'),
        ("double", float("-inf"), '"-Infinity"'),
        ("double", 0.1, "0.1"),
        ("decimal(10,2)", Decimal("-0.50"), '"-0.50"'),
        ("binary", b"\x00\xff", f'"{base64.b64encode(bytes([0, 255])).decode()}"'),
        ("date", datetime.date(2026, 1, 31), '"2026-01-31"'),
        ("timestamp", datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC), '"2026-01-31T12:00:00.000000Z"'),
        ("timestamp_ntz", datetime.datetime(2026, 1, 31, 12), '"2026-01-31T12:00:00.000000"'),
        ("array<int>", [1, None], "[1,null]"),
        ("struct<a:int>", {"a": 1}, '{"a":1}'),
    ]
    for name, value, expected in cases:
        assert texts(pa.array([None, value], arrow_type(SqlType.parse(name)))).to_pylist() == ["null", expected]


EPOCH = datetime.date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = datetime.date.min.toordinal() - EPOCH, datetime.date.max.toordinal() - EPOCH
DAY_US = 86_400_000_000
BOUND = 2**63 // DAY_US - 1
"""Days that a timestamp holds."""


@given(
    st.sampled_from(["date", "timestamp", "timestamp_ntz"]), st.booleans(), st.integers(-BOUND, BOUND), st.booleans()
)
@example("date", False, LAST_DAY + 1, False)
@example("date", False, FIRST_DAY - 1, False)
@example("timestamp", False, LAST_DAY + 1, False)
@example("timestamp", True, FIRST_DAY - 1, True)
@example("timestamp_ntz", False, LAST_DAY, True)
@example("timestamp_ntz", True, FIRST_DAY, False)
@example("timestamp_ntz", False, 12_000_000, False)
def test_agree_dates_of_all_years_are_read_as_they_were_or_stop_the_sink(
    name: str, nested: bool, day: int, late: bool
) -> None:
    """`late`: at the last microsecond of the day."""
    is_date = name == "date"
    value = day if is_date else day * DAY_US + (DAY_US - 1) * late
    type = SqlType.parse(name)
    column = pa.array([None, value], pa.int32() if is_date else pa.int64()).cast(arrow_type(type))
    if nested:
        type = SqlType.parse(f"array<{name}>")
        column = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), column).cast(arrow_type(type))
    if FIRST_DAY <= day <= LAST_DAY:
        [read] = JsonValues([Column("v", type)]).columns(
            [text.encode() for text in objects(["v"], [column]).to_pylist()]
        )
        assert read.equals(column)
    else:
        with pytest.raises(DestinationStopped, match="column v ") as raised:
            objects(["v"], [column])
        assert raised.value.reason == "ValueNotSupported"
