"""The oracle against planted mistakes: it sees every one of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import planted
from tests.oracle.cases import CASES
from tests.oracle.check import Wrong
from tests.oracle.oracle import Oracle
from tidemark_replica.render import prepare

pytestmark = pytest.mark.spark

MISTAKES = [
    (planted.forgets_retractions, "sum by key"),
    (planted.ignores_times, "count by key"),
    (planted.loses_errors, "divide"),
    (planted.counts_twice, "project"),
    (planted.forgets_its_state, "count by key"),
    (planted.joins_one_side_only, "join"),
    (planted.negates_nothing, "negate"),
    (planted.takes_null_for_a_value, "filter or null"),
]


@pytest.mark.parametrize(("mistake", "name"), MISTAKES, ids=[m.__name__ for m, _ in MISTAKES])
def test_oracle_sees_a_planted_mistake(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mistake: Any, name: str
) -> None:
    """The same case without the mistake passes in test_oracle.py."""
    monkeypatch.setattr(prepare, "run_stage", partial(planted.run_wrong, mistake))
    case = next(c for c in CASES if c.name == name)

    with pytest.raises(Wrong):
        oracle.check(case, 1, tmp_path)
