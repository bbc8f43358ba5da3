"""State that does not fit its room: a clear error, nothing committed, and the step can be run again with more room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import harness
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T
from tests.oracle.tables import T
from tidemark_protocol.frontier import Frontier
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.render.errors import StepFailed

pytestmark = pytest.mark.spark

HISTORY = random_history({"t": T}, 3)


def test_a_step_with_too_large_a_state_fails_and_leaves_the_state(spark: Any, tmp_path: Path) -> None:
    """The error says how much, and what to do."""
    with harness(spark, tmp_path, {"t": T}, HISTORY) as made:
        made.store.close()
        made.store = ArrangementStore(tmp_path / "small", limit_bytes=100)
        dataflow = made.build(made.describe(GET_T))
        before = made.store.arrangements()
        upper = HISTORY.last + 1

        with pytest.raises(StepFailed, match="scratch"):
            dataflow.run(dataflow.plan_step(Frontier.at(upper), made.inputs(dataflow, upper)))

        assert made.store.arrangements() == before
        assert dataflow.frontier == Frontier.at(HISTORY.as_of)
