"""Decisions of policy auto that a test makes in the place of costs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tidemark_replica.dataflow.refreshes import automatic as automatic_refreshes
from tidemark_replica.dataflow.refreshes.automatic import AutomaticRefreshes
from tidemark_replica.dataflow.refreshes.step_costs import Estimate, StepCosts


def decided_by(monkeypatch: pytest.MonkeyPatch, decide: Callable[[int], bool]) -> None:
    """Each time with changes is asked for, also those of a dataflow that is behind, until its policy is given up."""
    ask = AutomaticRefreshes.decide

    def forced(self: AutomaticRefreshes, heavy: Any) -> bool:
        costs = self.costs
        monkeypatch.setattr(costs, "decide", lambda estimate: not costs.is_given_up and decide(heavy.time))
        return ask(self, heavy)

    monkeypatch.setattr(AutomaticRefreshes, "decide", forced)
    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(AutomaticRefreshes, "_is_level", always, raising=False)
    monkeypatch.setattr(automatic_refreshes, "HEAVY_MAX", sys.maxsize)
    monkeypatch.setattr(StepCosts, "least_rows", lambda self, rows: 1)
    monkeypatch.setattr(StepCosts, "estimate", lambda self, rows, inputs: Estimate(rows, inputs, 9.0, 1.0))
