"""Where a step runs does not show: as Spark jobs, in a step worker, now here and now there.

The oracle's main way (`Oracle.check`) has every case hydrate as a job and step in a worker; here are the other ways.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.oracle.check import Case
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.kinds import KINDS
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import seeds
from tests.oracle.world import world

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
def test_agree_all_shapes_of_steps_give_the_same_updates(oracle: Oracle, case: Case, seed: int, tmp_path: Path) -> None:
    """Jobs alone; a worker alone, hydration included; small steps in the worker and larger ones as jobs."""
    history = random_history(case.tables, seed + 90, changes=case.changes, tick=case.tick)
    bounds = random_bounds(history, seed)
    with world(oracle.spark, tmp_path, case.tables, history) as of:
        description = oracle.describe(case, of)
        jobs = of.run(description, bounds)
        assert of.run(description, bounds, workers=oracle.workers, rows_most=math.inf) == jobs
        assert of.run(description, bounds, workers=oracle.workers, rows_most=2 * case.changes) == jobs
