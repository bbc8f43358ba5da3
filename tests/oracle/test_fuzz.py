"""Every family of operators under histories that hypothesis draws.

A few in `make test`; TIDEMARK_FUZZ_EXAMPLES of each family, others every time, to look for mistakes. A failure is
printed as the smallest script that shows it, and becomes a case.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracle.cases import PARTS
from tests.oracle.check import Case, Wrong
from tests.oracle.fuzz import Planned
from tests.oracle.harness import DataflowHarness, harness
from tests.oracle.histories import random_history
from tests.oracle.oracle import Oracle
from tests.oracle.scripts import Script, scripts
from tests.oracle.variants import from_time, restarted
from tests.oracle.variants.in_process import NeedsCatalyst
from tests.oracle.variants.reduced_first import never, reduced_first, wherever_possible
from tidemark_protocol.frontier import Frontier

pytestmark = [pytest.mark.spark, pytest.mark.timeout(0), pytest.mark.broad]

WANTED = int(os.environ.get("TIDEMARK_FUZZ_EXAMPLES", 0))
FUZZING = settings(
    max_examples=WANTED or 4,
    derandomize=not WANTED,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("family", PARTS)
def test_oracle_any_history_of_a_family(oracle: Oracle, family: str, tmp_path: Path) -> None:
    """However rows come, go and are corrected, however steps are cut, and interrupted, and begun anew."""

    @cache
    def planned(at: int, reduces_first: bool) -> Planned:
        case = PARTS[family][at]
        folder = tmp_path / f"{at}-{reduces_first}"
        of = DataflowHarness(oracle.spark, folder, case.tables, random_history(case.tables, 1, tick=case.tick))
        try:
            with reduced_first(wherever_possible if reduces_first else never):
                return Planned(case, oracle.describe(case, of), folder)
        finally:
            of.close()

    @FUZZING
    @given(st.data())
    def holds(data: Any) -> None:
        at = data.draw(st.integers(0, len(PARTS[family]) - 1))
        script = data.draw(scripts(PARTS[family][at]))
        try:
            planned(at, data.draw(st.booleans())).check(script)
        except NeedsCatalyst:
            check_by_jobs(oracle, PARTS[family][at], script)

    holds()


def check_by_jobs(oracle: Oracle, case: Case, script: Script) -> None:
    """Spark's batch at every frontier; by Catalyst alone, and begun anew in the middle, the same updates."""
    with TemporaryDirectory() as folder, harness(oracle.spark, Path(folder), case.tables, script.history) as of:
        description = oracle.describe(case, of).with_as_of(Frontier.at(script.history.as_of))
        updates = of.run(description, script.bounds)
        oracle.check_updates(case, script.history, description, updates)
        if of.run(description, script.other_bounds, arrow=False) != updates:
            raise Wrong(f"{case.name}: other steps, by Catalyst alone, give other updates")
        as_of, found = restarted(of, description, script.other_bounds)
        if found != from_time(updates, as_of):
            raise Wrong(f"{case.name}: begun anew at {as_of}, it gives other updates")
