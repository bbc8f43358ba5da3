"""SQL types and Arrow types name each other."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemark_protocol.types import SIMPLE_TYPES, SqlType, TypeNotSupported
from tidemark_replica.values.arrow_types import arrow_type, sql_type

NESTED = ["array<int>", "struct<a:timestamp,`B c`:array<decimal(5,1)>>", "array<array<struct<x:binary>>>"]


@pytest.mark.parametrize("name", [*sorted(SIMPLE_TYPES), "decimal(15,2)", "decimal(38,38)", *NESTED])
def test_every_column_type_survives_arrow(name: str) -> None:
    """There and back gives the same type."""
    assert str(sql_type(arrow_type(SqlType.parse(name)))) == name


@pytest.mark.parametrize(
    "type_",
    [pa.map_(pa.int64(), pa.int64()), pa.list_(pa.uint8()), pa.uint64(), pa.duration("us"), pa.decimal256(40, 2)],
)
def test_other_arrow_types_are_refused(type_: pa.DataType) -> None:
    """By name."""
    with pytest.raises(TypeNotSupported, match="not supported"):
        sql_type(type_)


def test_intervals_are_no_column_type() -> None:
    """They live inside expressions only."""
    with pytest.raises(TypeNotSupported):
        arrow_type(SqlType("interval day to second"))
