"""Merging keys with more rows than a merge should hold at a time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import updates
from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.spines.spine import merge_segments, ranges
from tidemark_replica.kernels.arrange import sorted_rows

LAYOUT = Layout.of_rows([pa.int64(), pa.string()], [0])
SINCE = 5


def random_runs(rng: np.random.Generator) -> list[Segment]:
    """Runs in which two keys, and the errors, have most of the rows; rows come twice, and cancel."""
    runs = []
    for _ in range(4):
        keys = rng.choice([1, 2, 3, 4, 5, 6], 60, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
        rows: list[Any] = [
            ("boom" if rng.integers(0, 6) == 0 else (int(k), "abcdefg"[rng.integers(0, 7)]), int(t), int(d))
            for k, t, d in zip(keys, rng.integers(0, 9, 60), rng.choice([-1, 1, 2], 60), strict=True)
        ]
        runs.append(Segment.of(sorted_rows(updates(list(LAYOUT.types), rows), LAYOUT)))
    return runs


def total(parts: list[Any]) -> Counter[Any]:
    """(row, time, error) and their diffs."""
    found: Counter[Any] = Counter()
    for part in parts:
        *_, time, _, diff = part.schema.names
        for row in part.to_pylist():
            found[row["c0"], row["c1"], max(row[time], SINCE), row["__error"]] += row[diff]
    return Counter({key: diff for key, diff in found.items() if diff})


@pytest.mark.parametrize("seed", range(5))
def test_agree_long_keys_merged_in_pieces_and_as_a_whole(seed: int, tmp_path: Path) -> None:
    """The same rows, consolidated, ascending by hash; no piece is much longer than asked for."""
    runs = random_runs(np.random.default_rng(seed))
    whole = list(merge_segments(runs, LAYOUT, SINCE, 1000))
    pieces = list(merge_segments(runs, LAYOUT, SINCE, 16))
    rows = sum(p.num_rows for p in pieces)
    hashes = np.concatenate([file_hashes(p) for p in pieces])

    assert total(pieces) == total(whole) == total([s.rows for s in runs])
    assert rows == len(total(pieces)), "a row is in two pieces"
    assert (hashes[1:] >= hashes[:-1]).all()
    assert max(sum(p.num_rows for p in piece) for piece in ranges(runs, LAYOUT, 16)) <= 4 * 16
