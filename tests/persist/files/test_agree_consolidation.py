"""Consolidation against plain addition, on every path: flat keys, nested keys, streams, and shares on disk."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.persist.model import summed
from tidemark_persist import DIFF, TIME, DiffOverflow, consolidate
from tidemark_persist import consolidate as public_consolidate
from tidemark_persist.files.consolidate import advance, consolidate_stream
from tidemark_persist.files.spill import divide, row_hash

NESTED = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
SCHEMA = pa.schema([("s", pa.string()), ("d", pa.date32()), ("n", NESTED), (TIME, pa.int64()), (DIFF, pa.int64())])

VALUES = st.fixed_dictionaries(
    {
        "s": st.sampled_from(["", "a", "b", "ab", None]),
        "d": st.sampled_from([0, 1, None]),
        "n": st.none()
        | st.fixed_dictionaries(
            {"x": st.sampled_from([0, 1, None]), "y": st.sampled_from([None, [], ["a"], ["a", None], ["a", "a"]])}
        ),
        TIME: st.integers(0, 3),
        DIFF: st.integers(-3, 3),
    }
)
UPDATES = st.lists(VALUES, max_size=40)


def table(rows: list[dict[str, object]]) -> pa.Table:
    """Rows as a table of SCHEMA."""
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def counted(updates: pa.Table) -> dict[str, int]:
    """Added up by the text of the row: slow, and obviously right."""
    rows = updates.to_pylist()
    return summed((repr({**row, DIFF: None}), row[DIFF]) for row in rows)


@settings(max_examples=60)
@given(UPDATES)
def test_agree_consolidation_with_addition(rows: list[dict[str, object]]) -> None:
    """Every row once, zeros gone, columns in their order."""
    result = consolidate(table(rows))

    assert counted(result) == counted(table(rows))
    assert result.num_rows == len(counted(result))
    assert result.schema == SCHEMA


@settings(max_examples=40)
@given(UPDATES, st.integers(1, 4), st.integers(1, 7))
def test_agree_shares_on_disk_with_one_table(rows: list[dict[str, object]], shares: int, piece: int) -> None:
    """Equal rows meet in one share, so that consolidating shares is consolidating all."""
    updates = table(rows)
    pieces = [updates.slice(start, piece) for start in range(0, len(rows), piece)]

    found = [consolidate_stream(share, SCHEMA) for share in divide(pieces, SCHEMA, shares)]
    assert len(found) == shares
    together = pa.concat_tables(found)
    assert counted(together) == counted(updates)
    assert together.num_rows == consolidate(updates).num_rows


def test_rows_spread_over_shares() -> None:
    """A hash that put all rows into one share would be right, and useless."""
    rows = pa.table({"k": [f"row {i}" for i in range(10_000)], "v": np.arange(10_000) // 2})
    sizes = np.bincount((row_hash(rows) % np.uint64(8)).astype(int), minlength=8)
    assert sizes.min() > 1000
    assert sizes.max() < 1600


def test_a_stream_larger_than_the_pending_limit_is_consolidated_on_the_way() -> None:
    """Ten million updates of three rows; the sum is exact."""
    piece = pa.table({"k": pa.repeat("x", 400_000), DIFF: pa.repeat(1, 400_000)})
    result = consolidate_stream((piece for _ in range(25)), piece.schema)
    assert result.to_pylist() == [{"k": "x", DIFF: 10_000_000}]


def test_multiplicity_beyond_64_bits_is_an_error_and_not_a_wrong_number() -> None:
    """Sums that only pass through large values are fine."""
    big = 2**62
    fits = pa.table({"k": ["a", "a", "a"], DIFF: [big, big - 1, -big]})
    assert public_consolidate(fits).to_pylist() == [{"k": "a", DIFF: big - 1}]
    with pytest.raises(DiffOverflow):
        public_consolidate(pa.table({"k": ["a", "a"], DIFF: [big, big]}))


def test_floats_are_told_apart_by_their_bits() -> None:
    """Storage does not decide what is equal in SQL; writers write one zero and one NaN."""
    floats = pa.table({"f": [0.0, -0.0, float("nan"), float("nan")], DIFF: [1, 1, 1, 1]})
    assert [row[DIFF] for row in public_consolidate(floats).to_pylist()] == [1, 1, 2]


def test_advance_moves_earlier_times_to_the_since_and_no_others() -> None:
    """A reader at the since cannot tell the times apart."""
    updates = pa.table({TIME: [1, 5, 9], DIFF: [1, 1, 1]})
    assert advance(updates, 5).column(TIME).to_pylist() == [5, 5, 9]
