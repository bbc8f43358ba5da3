"""Every kind of operator in other circumstances: the same updates, whatever is done to its state in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.check import Case
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.kinds import KINDS
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import seeds
from tests.oracle.variants import from_time, run_compacted, run_restarted, use_buckets
from tests.oracle.world import world

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
def test_agree_buckets_compaction_and_restarts_do_not_show(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, case: Case, seed: int, tmp_path: Path
) -> None:
    """Eight buckets, an index that is compacted and swept after each step, and a dataflow that begins in the middle."""
    history = random_history(case.tables, seed + 70, changes=case.changes, tick=case.tick)
    bounds = random_bounds(history, seed)
    with world(oracle.spark, tmp_path, case.tables, history) as of:
        description = oracle.describe(case, of)
        plain = of.run(description, bounds)
        use_buckets(monkeypatch)
        assert run_compacted(of, description, random_bounds(history, seed + 1000)) == plain
        as_of, updates = run_restarted(of, description, bounds)
        assert updates == from_time(plain, as_of)
