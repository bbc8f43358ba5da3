"""Hashes of rows: equal rows have equal ones, however Arrow holds them, and others differ."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_persist.files import row_hashes
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
    "decimals": (pa.list_(pa.decimal128(18, 2)), st.none() | st.lists(st.none() | st.just(Decimal(1)), max_size=3)),
    "lists": (pa.list_(pa.list_(pa.int32())), st.none() | st.lists(LISTS, max_size=3)),
    "texts": (pa.list_(pa.string()), st.none() | st.lists(TEXTS, max_size=3)),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        st.none() | st.fixed_dictionaries({"a": INTS, "b": st.none() | st.lists(TEXTS, max_size=2)}),
    ),
}


def hashes(*columns: pa.Array) -> list[tuple[int, int]]:
    one, two = RowHashes().hash_pair(columns, len(columns[0]))
    return list(zip(one.tolist(), two.tolist(), strict=True))


@pytest.mark.parametrize("name", VALUES)
@given(st.data())
def test_agree_hashes_with_equality_of_bits(name: str, data: st.DataObject) -> None:
    """Each of the two hashes tells as much; the second column is there to be added to."""
    type, values = VALUES[name]
    first = data.draw(st.lists(values, max_size=30))
    second = data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(first), max_size=len(first)))
    begin = data.draw(st.integers(0, len(first)))
    columns = pa.array(first, type).slice(begin), pa.array(second, pa.int64()).slice(begin)
    found = hashes(*columns)
    rows = [repr(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]

    for each in zip(*found, strict=True):
        assert len(set(zip(rows, each, strict=True))) == len(set(rows)) == len(set(each))


@pytest.mark.parametrize("name", VALUES)
def test_no_rows_have_no_hashes(name: str) -> None:
    """However Arrow holds no rows."""
    type = VALUES[name][0]
    some = pa.nulls(3, type)
    for array in (pa.array([], type), some.slice(3), some.filter(pa.array([False] * 3)), pa.nulls(0, type)):
        assert [len(each) for each in RowHashes().hash_pair([array], 0)] == [0, 0]
    lists = pa.array([None, [], None], pa.list_(type))
    assert len(set(hashes(lists))) == 2


VECTOR = np.random.default_rng(0).normal(size=16).astype(np.float32)
ALIKE: dict[str, tuple[object, object, pa.DataType]] = {
    "negated vector": (VECTOR.tobytes(), (-VECTOR).tobytes(), pa.binary()),
    "signs in halves": ((5, 1 << 40), (5 ^ -0x7FFFFFFF80000000, 1 << 40 ^ -0x7FFFFFFF80000000), pa.int64()),
    "signs": ((1.0, -2.5, 3.0, -1.5), (-1.0, 2.5, -3.0, 1.5), pa.float64()),
    "period of 4": ("abc0" * 4, "abcp" * 4, pa.string()),
    "case": ("abcdefghijklmnop", "abcDefgHijkLmnoP", pa.string()),
    "number": ("row1" * 4, "row2" * 4, pa.string()),
}


@pytest.mark.parametrize("name", ALIKE)
def test_values_that_change_alike_are_told_apart(name: str) -> None:
    """Each word changes by bits of which a product with an odd key keeps one: with any keys, so some are drawn."""
    before, after, type = ALIKE[name]
    rows = [each if isinstance(each, tuple) else (each,) for each in (before, after)]
    columns = [pa.array(values, type) for values in zip(*rows, strict=True)]
    for _ in range(200):
        (one, two), (other_one, other_two) = hashes(*columns)
        assert one != other_one
        assert two != other_two


@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4),
    st.lists(st.integers(0, 31), min_size=1, max_size=3),
    st.sampled_from([1, 1 << 32, 1 | 1 << 32]),
    st.sampled_from([pa.int64(), pa.binary(), pa.list_(pa.int64())]),
)
def test_bits_that_change_in_each_word_are_noticed(
    words: list[int], bits: list[int], halves: int, type: pa.DataType
) -> None:
    """The same bits of all words, in one half or in both."""
    other = [word ^ halves * sum({1 << bit for bit in bits}) for word in words]
    arrays = [pa.array(each, pa.uint64()).view(pa.int64()) for each in (words, other)]
    if type == pa.int64():
        columns = [pa.concat_arrays([a.slice(i, 1) for a in arrays]) for i in range(len(words))]
    elif type == pa.binary():
        columns = [pa.array([a.to_numpy().tobytes() for a in arrays], type)]
    else:
        columns = [pa.array([a.to_pylist() for a in arrays], type)]
    (one, two), (other_one, other_two) = hashes(*columns)
    assert one != other_one
    assert two != other_two


@pytest.mark.parametrize("name", VALUES)
@given(st.data())
def test_slices_do_not_change_hashes(name: str, data: st.DataObject) -> None:
    type, values = VALUES[name]
    rows = data.draw(st.lists(values, min_size=1, max_size=30))
    columns = [pa.array(rows, type), pa.array([str(i % 3) for i in range(len(rows))]).dictionary_encode()]
    of_rows = RowHashes()
    whole = of_rows.hash_pair(columns, len(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_hashes, "SLICE_BYTES", 40)
        sliced = of_rows.hash_pair(columns, len(rows))
    assert all(np.array_equal(one, other) for one, other in zip(whole, sliced, strict=True))


@pytest.mark.parametrize("type", [pa.string(), pa.binary(), pa.list_(pa.string())])
def test_long_texts_differ_in_each_byte_and_in_length(type: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts have more than a piece, beside short ones and NULL; pieces that are equal or change places."""
    monkeypatch.setattr(row_hashes, "PIECE_BYTES", 16)
    texts = ["", "a", *("x" * count for count in range(14, 50)), "y" * 16 + "x" * 33, "x" * 16 + "y" * 16 + "x" * 17]
    texts += ["x" * at + "z" + "x" * (48 - at) for at in range(49)] + [
        "x" * 40 + "\0" * count for count in range(1, 20)
    ]
    rows: list[Any] = [None, *([[text] for text in texts] if pa.types.is_list(type) else texts)]
    for _ in range(2):
        for each in zip(*hashes(pa.array(rows * 2, type).slice(1)), strict=True):
            assert len(set(each)) == len(rows)
            assert each[: len(rows) - 1] == each[len(rows) :]


@pytest.mark.parametrize(("rows", "length"), [(65_536, 1024), (1, 64 << 20)])
def test_memory_is_bounded_by_slices(rows: int, length: int) -> None:
    """Texts of 64 MiB, of which the words would take several times as much."""
    column = pa.array(["x" * length] * rows)
    tracemalloc.start()
    try:
        RowHashes().hash_pair([column], rows)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_values_keep_their_hashes_after_longer_ones() -> None:
    """Longer ones need more keys."""
    of_rows = RowHashes()
    columns = [pa.array(["a", "b" * 100]), pa.array([[1], [2, 3]], pa.list_(pa.int64()))]
    before = of_rows.hash_pair(columns, 2)
    of_rows.hash_pair([pa.array(["x" * 100_000]), pa.array([list(range(10_000))], pa.list_(pa.int64()))], 1)
    again = of_rows.hash_pair(columns, 2)
    assert all(np.array_equal(one, other) for one, other in zip(before, again, strict=True))


@given(st.lists(TEXTS, max_size=30), st.integers(0, 5))
def test_a_text_in_a_dictionary_is_the_text(values: list[str | None], begin: int) -> None:
    array = pa.array(values, pa.string())
    of_rows = RowHashes()
    plain, encoded = (each.slice(begin) for each in (array, array.dictionary_encode()))
    assert of_rows.hash_pair([plain], len(plain))[0].tolist() == of_rows.first_hash([encoded], len(plain)).tolist()


def test_columns_are_told_apart() -> None:
    """Values that change places, also of NULL, and columns that swap their differences."""
    a = pa.array([1, 2, None, 3, 1 << 63, 1, 0], pa.uint64()).cast(pa.int64(), safe=False)
    b = pa.array([2, 1, 3, None, 1, 1 << 63, 0], pa.uint64()).cast(pa.int64(), safe=False)
    assert len(set(hashes(a, b))) == len(a)
    signs = pa.array([1.0, -1.0]).take(pa.array([0, 1, 0, 1])), pa.array([1.0, -1.0]).take(pa.array([0, 0, 1, 1]))
    assert len(set(hashes(*signs))) == 4


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
    found = RowHashes().first_hash([column], len(column))
    counts = np.bincount((found >> np.uint64(54)).astype(int), minlength=1024)
    assert counts.min() > 40
    assert counts.max() < 180
    assert not np.array_equal(found, RowHashes().first_hash([column], len(column)))
