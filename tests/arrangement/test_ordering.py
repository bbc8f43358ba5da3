"""Ranks against Python's own order of the values, with NULL first, NaN last and text by its bytes."""

import math

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import TYPES, plain, random_column
from tidemark_replica.arrangement.rows.ordering import ranks


def key(value: object) -> tuple:
    """A key that Python orders as Spark orders the value."""
    if value is None:
        return (0,)
    if isinstance(value, list | dict):
        return (1, tuple(map(key, value.values() if isinstance(value, dict) else value)))
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    return (1, value.encode() if isinstance(value, str) else value)


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_ranks_order_as_spark_orders_values(t: pa.DataType) -> None:
    """Also nested ones, sliced, with garbage under NULLs."""
    column = random_column(np.random.default_rng(5), t, 500)
    values = column.to_pylist()

    found = ranks(column)

    distinct = sorted({plain(v): key(v) for v in values}.values())
    assert found.tolist() == [distinct.index(key(v)) for v in values]


def test_an_empty_column_has_no_ranks() -> None:
    """The function is called with empty batches, too, as all kernels are."""
    assert [ranks(pa.array([], t)).tolist() for t in TYPES] == [[]] * len(TYPES)
