"""The texts of few values are those that the same values have in a long column."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages.backend import BINARY, TEXT
from tidemark_pgwire.values.few_texts import FEW, few_texts
from tidemark_pgwire.values.rows import columns_of, data_rows
from tidemark_pgwire.values.text import texts
from tidemark_pgwire.values.types import BY_OID

ROWS = 2000
INTEGERS = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "oid": pa.uint32()}


def integers(of: pa.DataType) -> Callable[[random.Random], Any]:
    most = 2 ** (of.bit_width - 1) - 1
    least = 0 if of == pa.uint32() else -most - 1
    return lambda rng: rng.choice((least, most, 0, rng.randint(least, most), rng.randint(0, 9)))


def decimals(precision: int, scale: int) -> Callable[[random.Random], Any]:
    most = 10**precision - 1

    def one(rng: random.Random) -> Decimal:
        return Decimal(f"{rng.choice((0, 1, -1, most, -most, rng.randint(-most, most)))}e-{scale}")

    return one


def days(rng: random.Random) -> int:
    """Also those that Python's dates do not reach."""
    return rng.choice((rng.randint(-800_000, 3_000_000), rng.randint(0, 20_000), -719_162, 2_932_896, 2_932_897))


def words(rng: random.Random) -> str:
    return rng.choice(("", "a", "ä€𝄞", "it's", "\\", "\n", "x" * 300)) + str(rng.random())


KINDS = [
    *((kind, of, integers(of)) for kind, of in INTEGERS.items()),
    ("int2", pa.int8(), integers(pa.int8())),
    *(("numeric", pa.decimal128(p, s), decimals(p, s)) for p, s in ((1, 0), (15, 2), (18, 6), (20, 7), (38, 18))),
    ("date", pa.date32(), days),
    ("text", pa.string(), words),
]


@pytest.mark.parametrize(("kind", "of", "made"), KINDS, ids=[f"{kind} of {of}" for kind, of, _ in KINDS])
def test_few_values_have_the_texts_of_many(kind: str, of: pa.DataType, made: Callable[[random.Random], Any]) -> None:
    rng = random.Random(str(of))
    values = [None if rng.random() < 0.1 else made(rng) for _ in range(ROWS)]
    column = pa.array(values, pa.int32()).cast(of) if of == pa.date32() else pa.array(values, of)
    type = next(each for each in BY_OID.values() if each.kind == kind)
    expected, at, by_value = texts(column, type), 0, 0
    while at < ROWS:
        piece = column.slice(at, rng.randint(1, FEW))
        assert texts(piece, type) == expected[at : at + len(piece)]
        by_value += few_texts(piece, kind) is not None
        at += len(piece)
    assert by_value > 0


def test_a_date_that_python_has_not_is_printed_by_arrow() -> None:
    column = pa.array([2_932_897, -719_163], pa.int32()).cast(pa.date32())
    assert few_texts(column, "date") is None
    date_type = next(each for each in BY_OID.values() if each.kind == "date")
    assert texts(column, date_type) == [b"10000-01-01", b"0001-12-31 BC"]
    assert texts(pa.array([date(1, 1, 1)]), date_type) == [b"0001-01-01"]


@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
@pytest.mark.parametrize("format", [TEXT, BINARY])
def test_a_text_with_nul_is_refused_in_any_number_of_rows(rows: int, format: int) -> None:
    columns = columns_of(["a"], ["string"])
    good = pa.record_batch({"a": pa.array(["x"] * rows)})
    assert len(data_rows(good, columns, [format], "UTC")) == rows
    with pytest.raises(WireError, match="NUL"):
        data_rows(pa.record_batch({"a": pa.array(["x"] * (rows - 1) + ["a\0b"])}), columns, [format], "UTC")
