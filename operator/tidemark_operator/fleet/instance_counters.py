"""Messages between an instance and its replicas, and durations of peeks, counted since the process began."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

SECONDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class InstanceCounters:
    """The counters of one instance. Whole frames are counted at once, so it is cheap enough for every frame."""

    def __init__(self) -> None:
        self.commands: Counter[type] = Counter()
        self.responses: Counter[type] = Counter()
        self.connects = 0
        self.peeks = Durations()

    def count_commands(self, commands: Iterable[object]) -> None:
        """Count commands that were sent, by type."""
        self.commands.update(map(type, commands))

    def received(self, responses: Iterable[object]) -> None:
        """Count responses by type."""
        self.responses.update(map(type, responses))


class Durations:
    """A histogram of seconds, and the results: rows, an error, or canceled by the caller."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.sum_seconds = 0.0
        self.results: Counter[str] = Counter()

    @contextmanager
    def timed(self) -> Iterator[Outcome]:
        """Time a block. The block sets `outcome.result`; without it the result is `canceled`."""
        began, outcome = time.monotonic(), Outcome()
        try:
            yield outcome
        finally:
            took = time.monotonic() - began
            self.buckets[next((i for i, bound in enumerate(SECONDS) if took <= bound), len(SECONDS))] += 1
            self.sum_seconds += took
            self.results[outcome.result] += 1


class Outcome:
    """The result of a timed block."""

    result = "canceled"
