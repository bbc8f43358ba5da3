"""Decisions of policy auto that a test makes in the place of costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemark_replica.dataflow.automatic_refreshes import AutomaticRefreshes
from tidemark_replica.dataflow.step_costs import Estimate, StepCosts


def decided_by(monkeypatch: pytest.MonkeyPatch, decide: Callable[[int], bool]) -> None:
    """Each time with changes is asked for."""
    ask = AutomaticRefreshes.decide

    def forced(self: AutomaticRefreshes, heavy: Any) -> bool:
        monkeypatch.setattr(self.costs, "decide", lambda estimate: decide(heavy.time))
        return ask(self, heavy)

    monkeypatch.setattr(AutomaticRefreshes, "decide", forced)
    monkeypatch.setattr(StepCosts, "least_rows", lambda self, rows: 1)
    monkeypatch.setattr(StepCosts, "estimate", lambda self, rows, inputs: Estimate(rows, inputs, 9.0, 1.0))
