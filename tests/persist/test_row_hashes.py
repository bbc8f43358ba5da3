"""Hashes of rows: equal rows have equal ones, however Arrow holds them, and others differ."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_persist.files.row_hashes import RowHashes

INTS = st.none() | st.sampled_from([0, 1, -1, 1 << 30, -(1 << 31)]) | st.integers(-5, 5)
TEXTS = st.none() | st.sampled_from(["", "\0", "\0\0", "a", "abcdefgh", "abcdefgh\0", "abcdefghi", "x" * 40, "x" * 41])
LISTS = st.none() | st.lists(INTS, max_size=3)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), INTS),
    "bigint": (pa.int64(), INTS),
    "boolean": (pa.bool_(), st.none() | st.booleans()),
    "double": (pa.float64(), st.none() | st.sampled_from([0.0, -0.0, 1.0, 2.0, -2.0, float("nan"), 0.5])),
    "decimal": (pa.decimal128(30, 1), st.none() | st.sampled_from([Decimal(n) for n in (0, 1, -1, 10**25)])),
    "date": (pa.date32(), st.none() | st.dates()),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), st.none() | st.binary(max_size=20)),
    "list": (pa.list_(pa.int32()), LISTS),
    "lists": (pa.list_(pa.list_(pa.int32())), st.none() | st.lists(LISTS, max_size=3)),
    "texts": (pa.list_(pa.string()), st.none() | st.lists(TEXTS, max_size=3)),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        st.none() | st.fixed_dictionaries({"a": INTS, "b": st.none() | st.lists(TEXTS, max_size=2)}),
    ),
}


def hashes(*columns: pa.Array) -> list[tuple[int, int]]:
    one, two = RowHashes().both(columns, len(columns[0]))
    return list(zip(one.tolist(), two.tolist(), strict=True))


@pytest.mark.parametrize("name", VALUES)
@given(st.data())
def test_agree_hashes_with_equality_of_bits(name: str, data: st.DataObject) -> None:
    """Each of the two hashes tells as much; the second column is there to be added to."""
    type, values = VALUES[name]
    first = data.draw(st.lists(values, min_size=2, max_size=30))
    second = data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(first), max_size=len(first)))
    begin = data.draw(st.integers(0, len(first) - 1))
    columns = pa.array(first, type).slice(begin), pa.array(second, pa.int64()).slice(begin)
    found = hashes(*columns)
    rows = [repr(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]

    for each in zip(*found, strict=True):
        assert len(set(zip(rows, each, strict=True))) == len(set(rows)) == len(set(each))


@given(st.lists(TEXTS, max_size=30), st.integers(0, 5))
def test_a_text_in_a_dictionary_is_the_text(values: list[str | None], begin: int) -> None:
    array = pa.array(values, pa.string())
    of_rows = RowHashes()
    plain, encoded = (each.slice(begin) for each in (array, array.dictionary_encode()))
    assert of_rows.both([plain], len(plain))[0].tolist() == of_rows.first([encoded], len(plain)).tolist()


def test_columns_are_told_apart() -> None:
    """Values that change places, also of NULL, and columns that swap their differences."""
    a = pa.array([1, 2, None, 3, 1 << 63, 1, 0], pa.uint64()).cast(pa.int64(), safe=False)
    b = pa.array([2, 1, 3, None, 1, 1 << 63, 0], pa.uint64()).cast(pa.int64(), safe=False)
    assert len(set(hashes(a, b))) == len(a)
    signs = pa.array([1.0, -1.0]).take(pa.array([0, 1, 0, 1])), pa.array([1.0, -1.0]).take(pa.array([0, 0, 1, 1]))
    assert len(set(hashes(*signs))) == 4


@pytest.mark.parametrize("name", VALUES)
def test_no_rows_have_no_hashes(name: str) -> None:
    """Nor have lists without elements any of these."""
    type, _ = VALUES[name]
    columns = [pa.array([], type), pa.nulls(3, type).slice(3)]
    assert [len(each) for each in RowHashes().both(columns, 0)] == [0, 0]
    assert len(set(hashes(pa.array([[], None, []], pa.list_(type))))) == 2


def test_differences_of_high_bits_are_told_apart() -> None:
    """In two columns, or in two words of a text, at once: signs of numbers, alone or two in a word, as vectors have."""
    flips = np.array([0, 1 << 63, 1 << 31, (1 << 63) | (1 << 31), 3 << 62, (1 << 63) | (1 << 32)], np.uint64)
    both = [(a, b) for a in flips for b in flips]
    base = np.uint64(0x3FF1234567ABCDEF)
    one, two = (np.array([pair[i] ^ base for pair in both]) for i in range(2))
    columns = [pa.array(each.view(np.int64)) for each in (one, two)]
    vectors = pa.array([a.tobytes() + b.tobytes() for a, b in zip(one, two, strict=True)], pa.binary())
    lists = pa.array([list(pair) for pair in zip(*columns, strict=True)], pa.list_(pa.int64()))
    for found in (hashes(*columns), hashes(vectors), hashes(lists)):
        assert [len(set(each)) for each in zip(*found, strict=True)] == [len(both)] * 2


def test_no_row_has_a_hash_of_zero() -> None:
    """It would add nothing to a sum: a row that has nothing but zeros and empty texts is one as any other."""
    empty = [pa.array([0]), pa.array([""]), pa.array([[]], pa.list_(pa.int64())), pa.array([0.0])]
    assert 0 not in hashes(*empty)[0]


def test_hashes_are_spread_and_other_objects_give_other_ones() -> None:
    """The upper bits choose a sum, so each bit must depend on all of the row."""
    column = pa.array(np.arange(100_000))
    found = RowHashes().first([column], len(column))
    counts = np.bincount((found >> np.uint64(54)).astype(int), minlength=1024)
    assert counts.min() > 40
    assert counts.max() < 180
    assert not np.array_equal(found, RowHashes().first([column], len(column)))
