"""How long each operator of a stage has been at work: one clock for all of them, that runs for one at a time.

    index ──asks──> reduce ──asks──> join ──asks──> read t        while a batch is made below, those above it wait
     1 ms            3 ms            2 ms            20 ms        and their time stands still

What is told is microseconds in the order of `nodes_of` the stage's tree; who those nodes are, the driver knows
(`telemetry/operator_costs.py`). Nothing that is computed depends on it.
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
    """Microseconds: of the nodes of each stage, and of the merges of each arrangement."""

    stages: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    merges: Mapping[ArrangementId, int] = field(default_factory=dict)

    def and_(self, other: OperatorTimes) -> OperatorTimes:
        """Both: tasks of one stage together."""
        stages = dict(self.stages)
        for stage, times in other.stages.items():
            stages[stage] = tuple(map(sum, zip_longest(stages.get(stage, ()), times, fillvalue=0)))
        return OperatorTimes(stages, Counter(self.merges) + Counter(other.merges))

    def to_json(self) -> Any:
        """As JSON-able values; `from_json` reads it back."""
        return [dict(self.stages), dict(self.merges)]

    @staticmethod
    def from_json(value: Any) -> OperatorTimes:
        stages, merges = value
        return OperatorTimes({stage: tuple(times) for stage, times in stages.items()}, merges)


class OperatorClock:
    """Of one attempt of a stage, on its thread. The first node that it is turned to is the root of the tree."""

    def __init__(self) -> None:
        self._root: Pipeline | None = None
        self._running: Pipeline | None = None
        self._since = perf_counter()
        self._seconds: dict[int, float] = {}
        self._merges: Counter[ArrangementId] = Counter()

    def turn(self, to: Pipeline | None) -> Pipeline | None:
        """`to` works from now on (None: whoever reads what comes out at the root); who worked until now."""
        before, now = self._running, perf_counter()
        if before is not None:
            self._seconds[id(before)] = self._seconds.get(id(before), 0.0) + now - self._since
        elif self._root is None:
            self._root = to
        self._running, self._since = to, now
        return before

    def merged(self, arrangement: ArrangementId, seconds: float) -> None:
        """A merge was carried out behind the tree's end."""
        self._merges[arrangement] += round(seconds * MICROSECONDS)

    def spent(self, stage: str) -> OperatorTimes:
        """What has been counted. A value that stands twice in the tree is counted at its first place."""
        left, nodes = dict(self._seconds), () if self._root is None else nodes_of(self._root)
        return OperatorTimes(
            {stage: tuple(round(left.pop(id(node), 0.0) * MICROSECONDS) for node in nodes)}, self._merges
        )
