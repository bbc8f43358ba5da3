"""JSON texts that stand for numbers and dates, as Debezium and our sinks write them, and Debezium's placeholders."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.kafka.by_key.debezium import UNAVAILABLE, may_be_unavailable, unavailable
from tidemark_replica.storage.kafka.values.decoded import Unreadable
from tidemark_replica.storage.kafka.values.json_values import JsonValues

DAY = datetime.date(2020, 2, 3)
NUMBERS = list(UNAVAILABLE.encode())
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""The text that Debezium writes in place of a uuid[] that an update did not change."""


def read(type: str, *values: Any, name: str = "v") -> list[Any]:
    columns = Column("v", SqlType.parse(type)), Column("text", SqlType("string"))
    [column, _] = JsonValues(columns).columns([json.dumps({name: value, "text": 1}).encode() for value in values[:1]])
    [alone] = JsonValues(columns[:1]).columns([json.dumps({name: value}).encode() for value in values])
    assert column.equals(alone.slice(0, 1)) or type in ("float", "double")  # NaN is not NaN
    return alone.to_pylist()


@pytest.mark.parametrize("type", ["float", "double"])
def test_texts_of_numbers(type: str) -> None:
    nan, *others = read(type, "NaN", "Infinity", "-Infinity", 0.5, 7, None)
    assert math.isnan(nan)
    assert others == [math.inf, -math.inf, 0.5, 7.0, None]
    assert read(f"array<{type}>", [1.5, None, "Infinity"], None) == [[1.5, None, math.inf], None]
    fields = read(f"struct<a:{type}, b:string>", {"a": "Infinity", "b": "NaN"}, {"b": "x"})
    assert fields == [{"a": math.inf, "b": "NaN"}, {"a": None, "b": "x"}]


def test_dates_with_a_zone() -> None:
    assert read("date", "2020-02-03Z", "2020-02-03", None) == [DAY, DAY, None]
    assert read("date", "2020-02-03", "2020-02-03Z") == [DAY, DAY]
    assert read("array<date>", ["2020-02-03Z", None]) == [[DAY, None]]
    assert read("struct<d:date>", {"d": "2020-02-03Z"}) == [{"d": DAY}]


@pytest.mark.parametrize(
    ("type", "value"),
    [
        *(("double", text) for text in ("nan", "1.5", "", "inf")),
        *(
            ("date", text)
            for text in ("2020-02-30Z", "2020-02-03ZZ", "20200203Z", "2020-W06-1Z", "+20000-03-15Z", 1, "Z")
        ),
    ],
)
def test_other_texts_are_malformed(type: str, value: Any) -> None:
    with pytest.raises(Unreadable, match=r"`\$\.v`"):
        read(type, value)


@pytest.mark.parametrize(
    ("type", "kept", "others"),
    [
        (pa.string(), [UNAVAILABLE, f'["{UNAVAILABLE}"]', f'["{UUID}"]', str(NUMBERS).replace(" ", "")], ["", UUID]),
        (pa.binary(), [UNAVAILABLE.encode()], [b"", b"\xff"]),
        (pa.list_(pa.string()), [[UNAVAILABLE], [UUID]], [[], [None], [UNAVAILABLE, "x"], [UNAVAILABLE] * 2]),
        (pa.list_(pa.binary()), [[UNAVAILABLE.encode()]], [[], [b""]]),
        (pa.list_(pa.int32()), [NUMBERS], [[], [1] * len(NUMBERS), [*NUMBERS, 1], [None, *NUMBERS[1:]]]),
        (pa.list_(pa.int64()), [NUMBERS], [[NUMBERS[0]], NUMBERS[::-1]]),
        (pa.list_(pa.decimal128(20, 2)), [list(map(Decimal, NUMBERS))], [[], [Decimal("0.5")] * len(NUMBERS)]),
        (pa.list_(pa.float64()), [list(map(float, NUMBERS))], [[math.nan] * len(NUMBERS)]),
    ],
)
def test_placeholders(type: pa.DataType, kept: list[Any], others: list[Any]) -> None:
    assert may_be_unavailable(type)
    values = [None, *kept, *others, None, *kept]
    assert unavailable(pa.array(values, type)).to_pylist() == [value in kept for value in values]
    assert unavailable(pa.array([], type)).to_pylist() == []


def test_other_types_have_no_placeholders() -> None:
    types = pa.int64(), pa.date32(), pa.list_(pa.date32()), pa.list_(pa.bool_()), pa.struct([("a", pa.int8())])
    assert not any(map(may_be_unavailable, types))
