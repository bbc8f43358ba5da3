"""Sums of floats are exact: at every time `math.fsum` of the present rows.

A batch adds up in some order and rounds at every addition, so it cannot say this.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.check import Case
from tests.oracle.harness import contents, harness, plain
from tests.oracle.histories import Table, random_bounds, random_history
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import seeds

pytestmark = pytest.mark.spark

FLOATS = [0.1, 0.2, -0.3, 1e16, -1e16, 1e-300, -1e300, 1e300, 2.0**53, 1.0, -0.0, math.inf, math.nan, None]
CASE = Case(
    "exact sums",
    "SELECT a, sum(f) AS x FROM n GROUP BY a",
    {"n": Table((("a", "int"), ("f", "double")), ([1, 2, 2, 2, None], FLOATS))},
    changes=8,
)


def exact(values: list[float | None]) -> Any:
    known = [v for v in values if v is not None]
    return plain(math.fsum(known)) if known else None


@pytest.mark.parametrize("seed", seeds(2))
def test_oracle_sums_of_floats_are_exact_at_every_time(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    """To the last bit, after anything was added and taken away again."""
    history = random_history(CASE.tables, seed, changes=CASE.changes)
    with harness(oracle.spark, tmp_path, CASE.tables, history) as of:
        updates = of.run(oracle.describe(CASE, of), random_bounds(history, seed))

    for time in history.times:
        groups: dict[Any, list[float | None]] = {}
        for key, value in history.rows_at("n", time):
            groups.setdefault(key, []).append(value)
        expected = Counter((key, exact(values)) for key, values in groups.items())
        assert contents(updates, time) == (expected, {}), time
