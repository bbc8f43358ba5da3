"""Consolidation against a dictionary."""

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import TYPES, colliding, contents, random_column, updates
from tidemark_replica.arrangement.errors import DiffOverflow
from tidemark_replica.arrangement.rows.consolidate import consolidate, consolidate_sorted, sum_diffs
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.updates import make_updates
from tidemark_replica.arrangement.spines.trace import file_updates
from tidemark_replica.kernels.arrange import sorted_rows


@pytest.mark.parametrize("seed", range(20))
def test_one_update_is_left_per_row_and_time(seed: int) -> None:
    """Any types, any times, errs rows among oks: sums per (row, error, time), no zeros, no duplicates."""
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([0, 1, 50, 2000]))
    columns = [random_column(rng, TYPES[i], rows) for i in rng.integers(0, len(TYPES), 2)]
    errors = pa.array([None if x else "oops" for x in rng.integers(0, 4, rows)], pa.string())
    batch = make_updates(columns, rng.integers(0, 3, rows), rng.integers(-1, 2, rows), errors)

    result = consolidate(batch)

    assert contents(result) == contents(batch)
    assert result.num_rows == len(contents(batch))
    assert repr(consolidate(result).to_pylist()) == repr(result.to_pylist())


def test_colliding_rows_are_kept_apart() -> None:
    """Rows whose hashes collide are not added up; the time is no part of the collision here."""
    values = pa.array(["a", "b", "c"])
    other = colliding(values)
    types = [pa.string(), pa.int64()]
    batch = updates(types, [((v, o), 1, 1) for v, o in zip(values.to_pylist(), other, strict=True)] * 2)
    assert sorted(contents(consolidate(batch)).values()) == [2, 2, 2]


def test_minus_zero_retracts_zero() -> None:
    """Equal floats are one row, so what went in as 0.0 can be taken back as -0.0."""
    assert consolidate(updates([pa.float64()], [((0.0,), 1, 1), ((-0.0,), 1, -1)])).num_rows == 0


def test_an_overflowing_diff_is_refused() -> None:
    """Two diffs whose sum leaves 64 bits are an error, never a wrapped number."""
    with pytest.raises(DiffOverflow):
        consolidate(updates([pa.int64()], [((1,), 1, 2**62), ((1,), 1, 2**62)]))


def test_large_diffs_that_cancel_are_fine() -> None:
    """Only the sum must fit, not what it passes through."""
    diffs = np.array([2**62, 2**62, -(2**62), -(2**62), 2**63 - 1, -(2**63), 5])
    assert sum_diffs(diffs, np.array([0, 4, 6])).tolist() == [0, -1, 5]


@pytest.mark.parametrize("seed", range(10))
def test_rows_of_a_file_are_added_up_where_they_are_one(seed: int) -> None:
    """Keys of one row and of many, equal rows apart, hashes that collide, one time or several, with errs or without."""
    rng = np.random.default_rng(seed)
    rows, keys, times = int(rng.choice([1, 60, 3000])), int(rng.choice([1, 40, 100_000])), int(rng.choice([1, 3]))
    texts = ["a", "b", "c"]
    pairs = list(zip(texts, colliding(pa.array(texts)), strict=True))  # one hash, three keys
    at = rng.integers(0, keys, rows)
    columns = [pa.array([pairs[k % 3][0] for k in at]), pa.array([k if k > 2 else pairs[k][1] for k in at.tolist()])]
    errors = pa.array([None if x or seed % 2 else "oops" for x in rng.integers(0, 9, rows)], pa.string())
    columns = [*columns, random_column(rng, pa.decimal128(15, 2), rows)]
    batch = make_updates(columns, rng.integers(0, times, rows), rng.integers(-1, 2, rows), errors)
    layout = Layout.of_rows([c.type for c in columns], [0, 1])

    made = consolidate_sorted(sorted_rows(batch, layout), layout, 0)

    assert contents(file_updates(made, layout)) == contents(batch)
    assert made.num_rows == len(contents(batch))
    assert (np.diff(file_hashes(made).astype(np.float64)) >= 0).all()


@pytest.mark.parametrize("numbers", [3, 4000, 20_000, 1_000_000])
def test_of_many_rows_those_are_added_up_that_are_equal_in_texts_too(numbers: int) -> None:
    """The numbers leave all rows tied, most, some or none."""
    rng = np.random.default_rng(numbers)
    rows = 12_000
    texts = pa.array(["a", "b", None]).take(pa.array(rng.integers(0, 3, rows)))
    columns = [pa.array(rng.integers(0, numbers, rows)), texts]
    batch = make_updates(columns, np.zeros(rows, np.int64), rng.integers(-1, 3, rows))
    layout = Layout.of_rows([c.type for c in columns], [0])

    made = consolidate(batch)
    in_file = consolidate_sorted(sorted_rows(batch, layout), layout, 0)

    assert contents(made) == contents(file_updates(in_file, layout)) == contents(batch)
    assert made.num_rows == in_file.num_rows == len(contents(batch))
