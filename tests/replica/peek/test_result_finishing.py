"""The end of a peek: order as in Spark, ties alike everywhere, offset and limit."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.lir import OrderKey
from tidemark_replica.peek.result_finishing import finished

NAN = math.nan


def column(values: list[Any], type_: pa.DataType) -> pa.Table:
    return pa.table({"x": pa.array(values, type_)})


def shown(table: pa.Table) -> list[Any]:
    return [None if v is None else repr(v) for v in table.column(0).to_pylist()]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (OrderKey(0), [None, -math.inf, -1.0, 2.0, math.inf, NAN]),
        (OrderKey(0, descending=True), [None, NAN, math.inf, 2.0, -1.0, -math.inf]),
        (OrderKey(0, nulls_last=True), [-math.inf, -1.0, 2.0, math.inf, NAN, None]),
        (OrderKey(0, descending=True, nulls_last=True), [NAN, math.inf, 2.0, -1.0, -math.inf, None]),
    ],
)
def test_order_of_numbers_is_sparks(key: OrderKey, expected: list[float | None]) -> None:
    """NaN is the greatest, NULL where the key says."""
    rows = column([2.0, NAN, None, -math.inf, math.inf, -1.0], pa.float64())

    assert shown(finished(rows, Finishing((key,)))) == shown(column(expected, pa.float64()))


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([False, True], pa.bool_()),
        (["", "Z", "a", "é"], pa.string()),
        ([b"\x00", b"\xff"], pa.binary()),
    ],
)
def test_order_of_other_types(values: list[Any], type_: pa.DataType) -> None:
    """False before true; text and bytes by their bytes."""
    rows = column(values[::-1], type_)

    assert finished(rows, Finishing((OrderKey(0),))).column(0).to_pylist() == values


def test_ties_offset_limit_and_shown() -> None:
    """Ties by all columns; then the offset, the limit, and only the columns shown."""
    rows = pa.table({"shown": [4, 3, 2, 1, 0], "key": [1, 1, 1, 0, 2]})
    finishing = Finishing((OrderKey(1, descending=True),), limit=2, offset=1, shown=1)

    assert finished(rows, finishing).to_pydict() == {"shown": [2, 3]}


def test_without_an_order_the_limit_alone_counts() -> None:
    """The first rows count, as they come."""
    rows = column([3, 1, 2], pa.int64())

    assert finished(rows, Finishing(limit=2)).column(0).to_pylist() == [3, 1]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (OrderKey(0, nulls_last=True), [[None], [1], [2], None]),
        (OrderKey(0, descending=True), [None, [2], [1], [None]]),
    ],
)
def test_an_array_that_is_null_stands_where_the_key_says(key: OrderKey, expected: list[Any]) -> None:
    """Unlike a NULL inside an array, which is the least of its elements."""
    rows = column([[1], None, [None], [2]], pa.list_(pa.int32()))

    assert finished(rows, Finishing((key,))).column(0).to_pylist() == expected
