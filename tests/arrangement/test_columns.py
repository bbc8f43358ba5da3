"""Hash, equality and grouping over every column type, against Python's own idea of equal values."""

import math

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import NAN_WITH_PAYLOAD, TYPES, colliding, number_of, plain, pool, random_column, unmix
from tidemark_replica.arrangement.errors import UnsupportedType
from tidemark_replica.arrangement.rows.columns import any_null, canonical, canonical_rows, check_type, equal_rows
from tidemark_replica.arrangement.rows.grouping import group_rows, order_by_hash
from tidemark_replica.arrangement.rows.hashing import ERRS_HASH, hash_rows, key_hashes
from tidemark_replica.arrangement.rows.task_share import share_edges, share_indices
from tidemark_replica.arrangement.rows.updates import make_updates


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_equality_is_that_of_sql_grouping(t: pa.DataType) -> None:
    """NULL = NULL, NaN = NaN, -0.0 = 0.0, whatever bytes lie under a NULL; equal values hash alike."""
    rng = np.random.default_rng(1)
    left, right = random_column(rng, t, 2000), random_column(rng, t, 2000)
    expected = [plain(a) == plain(b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)]

    equal = equal_rows([left], [right], 2000)

    assert equal.tolist() == expected
    assert any(expected)
    hashes_agree = hash_rows([left], 2000) == hash_rows([right], 2000)
    assert hashes_agree.tolist() == expected  # the pools are small: no chance collisions


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_exact_over_random_types(seed: int) -> None:
    """Grouping several columns of any types equals grouping tuples in a dictionary."""
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([0, 1, 2, 63, 64, 65, 3000]))
    columns = [random_column(rng, TYPES[i], rows) for i in rng.integers(0, len(TYPES), rng.integers(1, 4))]

    groups = group_rows(hash_rows(columns, rows), columns)

    assert_exact(groups, columns, rows)


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_groups_are_exact_when_all_hashes_collide(t: pa.DataType) -> None:
    """Many different keys with one and the same 64-bit hash still make a group each."""
    rng = np.random.default_rng(3)
    values = pa.array(pool(t), t)
    pick = pa.array(rng.integers(0, len(values), 500))
    columns = [values.take(pick), pa.array(colliding(values), pa.int64()).take(pick)]
    hashes = hash_rows(columns, 500)
    assert len(np.unique(hashes)) == 1

    assert_exact(group_rows(hashes, columns), columns, 500)


def assert_exact(groups, columns, rows) -> None:
    keys = [tuple(map(plain, row)) for row in zip(*(c.to_pylist() for c in columns), strict=True)]
    ids = groups.ids().tolist()
    assert len(groups.starts) == len(set(keys))
    assert len(set(zip(ids, keys, strict=True))) == len(set(keys))
    first = {key: keys.index(key) for key in set(keys)}
    assert sorted(groups.first.tolist()) == sorted(first.values())


def test_null_words_depend_on_their_position() -> None:
    """(1, NULL) and (NULL, 1) hash differently."""
    one, null = pa.array([1], pa.int64()), pa.array([None], pa.int64())
    assert hash_rows([one, null], 1)[0] != hash_rows([null, one], 1)[0]


def test_a_strings_hash_is_its_own() -> None:
    """A string hashes alike alone, sliced, and beside short and very long neighbours."""
    texts = ["", "abc", "x" * 100, "y" * 257, "z" * 100_000, "y" * 256]
    together = hash_rows([pa.array(texts)], len(texts))
    alone = [hash_rows([pa.array([text])], 1)[0] for text in texts]
    sliced = [hash_rows([pa.array(texts).slice(i, 1)], 1)[0] for i in range(len(texts))]
    assert together.tolist() == alone == sliced
    assert len(set(alone)) == len(texts)


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_a_values_hash_does_not_depend_on_its_neighbours(t: pa.DataType) -> None:
    """Every value hashes alone as it does beside all the others: state and delta are hashed in different batches."""
    values = pa.array(pool(t), t)
    alone = [hash_rows([values.slice(i, 1)], 1)[0] for i in range(len(values))]
    assert hash_rows([values], len(values)).tolist() == alone


def test_no_row_has_the_hash_of_errs_rows() -> None:
    """Errs rows sort first by a hash of their own; the one bigint that hashes to it is moved out of the way."""
    taken = pa.array(number_of(unmix(np.array([ERRS_HASH])) - np.uint64(0x9E3779B97F4A7C15), 0))
    assert hash_rows([taken], 1)[0] == ERRS_HASH
    assert key_hashes([taken], 1)[0] > ERRS_HASH


def test_permuted_words_of_long_strings_hash_differently() -> None:
    """The sum over a long string's words depends on their positions."""
    a, b = "abcdefgh" * 40, "ABCDEFGH"
    assert len(set(hash_rows([pa.array([a + b, b + a])], 2).tolist())) == 2


def test_no_hash_collisions_among_a_million_keys() -> None:
    """64 bits suffice by a wide margin; a weak combination of columns would show here."""
    n = 1_000_000
    columns = [pa.array(np.arange(n) % 1000), pa.array(np.arange(n) // 1000)]
    assert len(np.unique(key_hashes(columns, n))) == n


def test_order_by_hash_is_stable_when_hashes_differ_in_low_bits_only() -> None:
    """The row number replaces low bits while sorting; hashes that differ only there are sorted all the same."""
    rng = np.random.default_rng(5)
    hashes = rng.integers(0, 200, 5000).astype(np.uint64)
    assert order_by_hash(hashes).tolist() == np.argsort(hashes, kind="stable").tolist()


@pytest.mark.parametrize("shares", [1, 2, 3, 7, 16])
def test_shares_are_ranges_of_hashes(shares: int) -> None:
    """Cutting sorted hashes at the edges gives the same shares as computing them."""
    rng = np.random.default_rng(shares)
    edges = share_edges(shares)
    near = np.concatenate([edges, edges - np.uint64(1)])
    hashes = np.sort(np.concatenate([rng.integers(0, 2**64, 1000, dtype=np.uint64), near]))
    assert share_indices(hashes, shares).tolist() == np.searchsorted(edges, hashes, "right").tolist()
    assert len(set(share_indices(hashes, shares).tolist())) == shares


def test_canonical_floats_have_one_zero_and_one_nan() -> None:
    """Canonical columns are bit for bit equal where their values are; a clean column is not copied."""
    column = pa.array([0.0, -0.0, float("nan"), NAN_WITH_PAYLOAD, None, 2.5])
    words = np.frombuffer(canonical(column).buffers()[1], np.uint64)
    assert words[0] == words[1]
    assert words[2] == words[3]
    assert canonical(column).to_pylist()[4:] == [None, 2.5]
    clean = pa.array([1.0, 2.0])
    assert canonical(clean) is clean


def test_null_keys_are_named_for_joins() -> None:
    """Rows with a NULL in any key column are told apart; None says that there are none."""
    a, b = pa.array([1, None, 3]), pa.array(["x", "y", None])
    assert any_null([a, b], 3).tolist() == [False, True, True]
    assert any_null([pa.array([1])], 1) is None


@pytest.mark.parametrize(
    "t",
    [
        pa.list_(pa.large_string()),
        pa.map_(pa.int64(), pa.int64()),
        pa.large_string(),
        pa.timestamp("ns"),
        pa.decimal256(40, 0),
    ],
    ids=str,
)
def test_other_types_are_refused_by_name(t: pa.DataType) -> None:
    """A type that no kernel knows is refused where a layout is made, not somewhere inside."""
    with pytest.raises(UnsupportedType, match="no columns of type"):
        check_type(t)


def test_a_batch_of_canonical_floats_is_passed_on_unchanged() -> None:
    """Every stream is made canonical where it begins; most have nothing to change."""
    times, diffs = np.array([1, 1]), np.array([1, 1])
    clean = make_updates([pa.array([0.0, None]), pa.array(["a", "b"])], times, diffs)
    negative = make_updates([pa.array([-0.0, None]), pa.array(["a", "b"])], times, diffs)

    assert canonical_rows(clean) is clean
    assert canonical_rows(negative).equals(clean)
    assert math.copysign(1.0, canonical_rows(negative).column(0)[0].as_py()) == 1.0


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 2047, 2048, 20_000])
def test_order_by_hash_is_that_of_a_stable_sort(rows: int) -> None:
    """Few hashes and many; all different, repeated, alike in their upper half, of two values only, in some runs."""
    rng = np.random.default_rng(rows)
    far = rng.integers(0, 1 << 63, rows, dtype=np.uint64) * np.uint64(2)
    some = far[rng.integers(0, max(rows // 4, 1), rows)] if rows else far
    near = some & ~np.uint64(0xFFFFFFFF) | rng.integers(0, 3, rows, dtype=np.uint64)
    runs = [np.concatenate([np.sort(run) for run in np.array_split(near, pieces)]) for pieces in (1, 5, 40)]
    for hashes in (far, some, near, near >> np.uint64(40), rng.integers(0, 2, rows, dtype=np.uint64), *runs):
        assert order_by_hash(hashes).tolist() == np.argsort(hashes, kind="stable").tolist()
