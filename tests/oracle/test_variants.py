"""Every kind of operator in other circumstances gives the same updates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.check import Case
from tests.oracle.harness import harness
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.kinds import KINDS
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import seeds
from tests.oracle.variants import VARIANTS, from_time

pytestmark = [pytest.mark.spark, pytest.mark.broad]


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
def test_agree_variants_give_the_same_updates(oracle: Oracle, case: Case, seed: int, tmp_path: Path) -> None:
    """Buckets, compaction, restarts, the order of rows, evaluators and shapes do not show."""
    history = random_history(case.tables, seed + 70, changes=case.changes, tick=case.tick)
    bounds = random_bounds(history, seed)
    with harness(oracle.spark, tmp_path, case.tables, history) as of:
        description = oracle.describe(case, of)
        plain = of.run(description, bounds)
        for number, (name, variant) in enumerate(VARIANTS.items()):
            as_of, updates = variant(of, description, random_bounds(history, seed + 1000 * (number + 1)))
            assert updates == from_time(plain, as_of), f"{name}: other updates"
