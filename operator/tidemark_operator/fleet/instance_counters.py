"""Messages between an instance and its replicas, and durations of peeks, counted since the process began."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

SECONDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class InstanceCounters:
    """The counters of one instance: `commands` and `responses` by type."""

    def __init__(self) -> None:
        self.commands: Counter[type] = Counter()
        self.responses: Counter[type] = Counter()
        self.connects = 0
        self.peeks = Durations()


class Durations:
    """A histogram of seconds, and the results: rows, an error, or canceled by the caller."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.sum_seconds = 0.0
        self.results: Counter[str] = Counter()

    def add(self, seconds: float, result: str) -> None:
        """Count a peek that took so many seconds, and its result."""
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.sum_seconds += seconds
        self.results[result] += 1
