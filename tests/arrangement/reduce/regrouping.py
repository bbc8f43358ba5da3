"""Histories driven through the groups kernel, cut into steps, chunks and pieces of all sizes."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver, contents, updates, with_garbage_under_nulls
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.kernels.groups import reevaluated_groups
from tidemark_replica.kernels.groups.reevaluated_groups import GroupFunction, ReevaluatedGroupsSpec, reevaluate_groups

CUTS = ((1000, 1 << 18, [2, 14]), (5, 7, [2, 3, 7, 8, 14]), (1, 3, list(range(2, 15))))
"""(rows of a chunk, entries of a piece, uppers of the steps)"""


def history(rng: np.random.Generator, pools: list[list], upper: int, n: int) -> list[tuple]:
    """Inserts and retractions, some of them before their row or too many, and errs rows: (row or error, time, diff)."""
    rows: list[tuple] = []
    for _ in range(n):
        row = tuple(pool[rng.integers(0, len(pool))] for pool in pools)
        time = int(rng.integers(0, upper))
        if rng.integers(0, 20) == 0:
            rows.append(("boom", time, 1))
            continue
        diff = int(rng.choice([1, 1, 2, 3]))
        rows.append((row, time, diff))
        if rng.integers(0, 3):
            rows.append((row, int(rng.integers(0 if rng.integers(0, 12) == 0 else time, upper)), -diff))
    return rows


def run(
    folder: Path,
    rng: np.random.Generator,
    spec: ReevaluatedGroupsSpec,
    rows: list[tuple],
    cuts: list[int],
    chunk_rows: int = 1000,
) -> Counter:
    """All steps of a history; what came out."""
    driver = Driver(folder, Manifest.empty(A, spec.layout, cuts[0]), chunk_rows=chunk_rows)
    result: Counter = Counter()
    for lower, upper in pairwise(cuts):
        chosen = [(row, max(t, cuts[0]), d) for row, t, d in rows if lower <= max(t, cuts[0]) < upper]
        rng.shuffle(chosen)
        batch = updates(list(spec.layout.types), chosen)
        columns = [with_garbage_under_nulls(c, rng) for c in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        cut = int(rng.integers(0, batch.num_rows + 1))
        context = driver.context(lower, upper, hydration=lower == cuts[0])
        output = list(reevaluate_groups(context, spec, [batch.slice(0, cut), batch.slice(cut)]))
        oks = sum(b["__error"].null_count for b in output)
        assert oks == sum(1 for _, error, _ in contents(output) if error is None), "an update that another undoes"
        result.update(contents(output))
        driver.commit(context, compact=bool(rng.integers(0, 4)))
    return Counter({k: d for k, d in result.items() if d})


def spec_of(
    function: GroupFunction, types: list[pa.DataType], key: tuple[int, ...], *, always: bool
) -> ReevaluatedGroupsSpec:
    return ReevaluatedGroupsSpec(A, Layout.of_rows(types, key), function, always)


def check_all_cuts(
    folder: Path,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    spec: ReevaluatedGroupsSpec,
    rows: list,
    expected: Counter,
) -> None:
    """However the history is cut, exactly the expected updates come out."""
    for chunk_rows, entries, cuts in CUTS:
        monkeypatch.setattr(reevaluated_groups, "RANGE_ENTRIES", entries)
        monkeypatch.setattr(reevaluated_groups, "RANGE_ROWS", 2 * entries)
        assert run(folder / str(chunk_rows), rng, spec, rows, cuts, chunk_rows) == expected
