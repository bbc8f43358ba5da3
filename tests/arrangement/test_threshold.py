"""The threshold kernel against a dictionary of multiplicities, at every time, however a history is cut."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver, contents, seeds, updates
from tidemark_replica.arrangement.errors import MalformedUpdates
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.kernels.threshold import ThresholdSpec, counts_of, threshold

TYPES = [pa.int64(), pa.string(), pa.float64()]
SPEC = ThresholdSpec(A, tuple(TYPES))


def history(rng: np.random.Generator) -> list[tuple]:
    """Rows that come and go in any order, many of them taken away before they are there."""
    values = [(1, "a", 0.5), (1, None, None), (None, "a", float("inf")), (2, "", 0.0)]
    return [(values[rng.integers(4)], int(rng.integers(0, 12)), int(rng.integers(-3, 4))) for _ in range(60)]


def expected_output(rows: list[tuple], as_of: int) -> Counter:
    """From time to time, by how much the positive part of each row's multiplicity changes."""
    result: Counter = Counter()
    for row in {row for row, _, _ in rows}:
        shown = 0
        for time in range(as_of, 12):
            now = max(0, sum(d for r, t, d in rows if r == row and max(t, as_of) <= time))
            result[row, None, time] += now - shown
            shown = now
    return Counter({k: d for k, d in result.items() if d})


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_split_every_cut_of_a_history_gives_the_exact_output(seed: int, tmp_path: Path) -> None:
    """Steps and chunks of all sizes: at every time exactly what is there more than zero times."""
    rng = np.random.default_rng(seed)
    rows = history(rng)
    expected = expected_output(rows, 2)
    for chunk_rows, cuts in ((1000, [2, 12]), (5, [2, 3, 7, 12]), (1, list(range(2, 13)))):
        layout = counts_of(SPEC.types).layout
        driver = Driver(tmp_path / str(chunk_rows), Manifest.empty(A, layout, 2), chunk_rows=chunk_rows)
        result: Counter = Counter()
        for lower, upper in pairwise(cuts):
            step = [(r, max(t, 2), d) for r, t, d in rows if lower <= max(t, 2) < upper]
            context = driver.context(lower, upper, hydration=lower == 2)
            result.update(contents(threshold(context, SPEC, [updates(TYPES, step)])))
            driver.commit(context, compact=bool(rng.integers(0, 2)))
        assert Counter({k: d for k, d in result.items() if d}) == expected


def test_errors_pass_and_a_multiplicity_below_zero_is_none(tmp_path: Path) -> None:
    """A row that EXCEPT ALL took too often shows nothing until enough of it comes back; an errs row goes through as it
    is."""
    driver = Driver(tmp_path, Manifest.empty(A, counts_of((pa.int64(),)).layout, 0))
    shown = []
    for time, rows in enumerate([[((1,), 0, -2), ("boom", 0, 1)], [((1,), 1, 3)], [("boom", 2, -1)]]):
        context = driver.context(time, time + 1, hydration=time == 0)
        shown.append(contents(threshold(context, ThresholdSpec(A, (pa.int64(),)), [updates([pa.int64()], rows)])))
        driver.commit(context, compact=True)
    assert shown == [{((None,), "boom", 0): 1}, {((1,), None, 1): 1}, {((None,), "boom", 2): -1}]


def test_state_of_another_layout_is_refused(tmp_path: Path) -> None:
    """A plan that gives the kernel somebody else's arrangement fails before it reads it."""
    driver = Driver(tmp_path, Manifest.empty(A, Layout.of_rows(TYPES, (0,)), 0))
    with pytest.raises(MalformedUpdates, match="does not hold the state of this threshold"):
        next(threshold(driver.context(0, 1, hydration=True), SPEC, []))
