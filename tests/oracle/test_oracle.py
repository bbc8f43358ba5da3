"""Every case of `cases.py`, over random histories: at every frontier the view shows what a batch answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.cases import CASES
from tests.oracle.check import Case
from tests.oracle.kinds import KINDS
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import FEW, seeds

pytestmark = pytest.mark.spark
_CASES = [*KINDS, *(pytest.param(case, marks=pytest.mark.broad) for case in CASES if case not in KINDS)]


@pytest.mark.parametrize("seed", seeds(FEW))
@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_oracle_a_view_shows_what_a_batch_answers(oracle: Oracle, case: Case, seed: int, tmp_path: Path) -> None:
    """Rows, values, types and errors, at every time, however the history is cut into steps.

    One history in `make test`; many in `make oracle`.
    """
    oracle.check(case, seed, tmp_path)
