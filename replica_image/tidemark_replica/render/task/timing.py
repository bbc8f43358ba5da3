"""Operator times: one clock for all operators of a stage, which runs for one operator at a time.

    index ──asks──> reduce ──asks──> join ──asks──> read t        while a batch is made below, the clocks of the
     1 ms            3 ms            2 ms            20 ms        operators above stand still

Reports have microseconds in the order of `nodes_of` the stage's tree; the driver maps nodes to operators
(`telemetry/operator_costs.py`). The times are for display only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from time import perf_counter
from typing import Any

from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.render.plan.pipeline import Pipeline, nodes_of

MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class OperatorTimes:
    """Microseconds by stage and node, and by arrangement for merges."""

    stages: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    merges: Mapping[ArrangementId, int] = field(default_factory=dict)

    def plus(self, other: OperatorTimes) -> OperatorTimes:
        """The sum of both, for tasks of one stage."""
        stages = dict(self.stages)
        for stage, times in other.stages.items():
            stages[stage] = tuple(map(sum, zip_longest(stages.get(stage, ()), times, fillvalue=0)))
        return OperatorTimes(stages, Counter(self.merges) + Counter(other.merges))

    def to_json(self) -> Any:
        """The times as JSON values, which `from_json` reads back."""
        return [dict(self.stages), dict(self.merges)]

    @staticmethod
    def from_json(value: Any) -> OperatorTimes:
        stages, merges = value
        return OperatorTimes({stage: tuple(times) for stage, times in stages.items()}, merges)


class OperatorClock:
    """The clock of one attempt of a stage, on its thread. The first node turned to is the root of the tree."""

    def __init__(self) -> None:
        self._root: Pipeline | None = None
        self._running: Pipeline | None = None
        self._since = perf_counter()
        self._seconds: dict[int, float] = {}
        self._merges: Counter[ArrangementId] = Counter()

    def turn(self, to: Pipeline | None) -> Pipeline | None:
        """Let `to` work from now on (None: the reader of the output). Returns the node that worked until now."""
        before, now = self._running, perf_counter()
        if before is not None:
            self._seconds[id(before)] = self._seconds.get(id(before), 0.0) + now - self._since
        elif self._root is None:
            self._root = to
        self._running, self._since = to, now
        return before

    def merged(self, arrangement: ArrangementId, seconds: float) -> None:
        """Add the time of a merge."""
        self._merges[arrangement] += round(seconds * MICROSECONDS)

    def times_of(self, stage: str) -> OperatorTimes:
        """The times so far. A node that occurs twice in the tree counts at its first position."""
        left, nodes = dict(self._seconds), () if self._root is None else nodes_of(self._root)
        return OperatorTimes(
            {stage: tuple(round(left.pop(id(node), 0.0) * MICROSECONDS) for node in nodes)}, self._merges
        )
