"""The oracle against planted mistakes: it sees every one of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.cases import CASES
from tests.oracle.check import Case, Wrong
from tests.oracle.oracle import Oracle
from tests.oracle.variants import planted
from tidemark_replica.render.execution import prepare

pytestmark = [pytest.mark.spark, pytest.mark.broad]

# kinds of operators whose state is more than sums
RANKINGS = (
    "threshold: except all",
    "limit and offset",
    "min and max",
    "row numbers and shifts",
    "string_agg in an order",
    "percentiles",
)
MISTAKES = [
    (planted.forgets_retractions, "sum by key"),
    (planted.ignores_times, "count by key"),
    (planted.loses_errors, "divide"),
    (planted.counts_twice, "project"),
    (planted.forgets_its_state, "count by key"),
    (planted.reads_a_spool_once, "distinct aggregates of several values, and others"),
    (planted.joins_one_side_only, "join"),
    (planted.negates_nothing, "negate"),
    (planted.counts_ways_twice, "recursion: walks of bounded length"),
    (planted.takes_null_for_a_value, "filter or null"),
    *((planted.forgets_its_state, kind) for kind in RANKINGS),
    *((planted.takes_nothing_back, kind) for kind in RANKINGS[::2]),
    *((planted.answers_at_the_end, kind) for kind in RANKINGS[1::2]),
]
SEEDS = (1, 2, 3)


@pytest.mark.parametrize(("mistake", "name"), MISTAKES, ids=[f"{m.__name__}-{name}" for m, name in MISTAKES])
def test_oracle_sees_a_planted_mistake(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mistake: Any, name: str
) -> None:
    """In one of a few histories; the same case without the mistake passes in test_oracle.py."""
    monkeypatch.setattr(prepare, "run_stage", partial(planted.run_wrong, mistake))
    case = next(c for c in CASES if c.name == name)

    assert any(is_seen(oracle, case, seed, tmp_path / str(seed)) for seed in SEEDS)


def is_seen(oracle: Oracle, case: Case, seed: int, folder: Path) -> bool:
    try:
        oracle.check(case, seed, folder)
    except Wrong:
        return True
    return False
