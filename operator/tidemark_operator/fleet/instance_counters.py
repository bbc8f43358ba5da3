"""What went between an instance and its replicas, counted since the process began."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

SECONDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class InstanceCounters:
    """Of one instance. Cheap enough for every frame: whole frames are counted at once."""

    def __init__(self) -> None:
        self.commands: Counter[type] = Counter()
        self.responses: Counter[type] = Counter()
        self.connects = 0
        self.peeks = Durations()

    def sent(self, commands: Iterable[object]) -> None:
        self.commands.update(map(type, commands))

    def received(self, responses: Iterable[object]) -> None:
        self.responses.update(map(type, responses))


class Durations:
    """A histogram of seconds, and what came of each: rows, an error, or the asker gave up."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.sum_seconds = 0.0
        self.results: Counter[str] = Counter()

    @contextmanager
    def timed(self) -> Iterator[Outcome]:
        """`outcome.result` is to be set before the end; otherwise it was given up."""
        began, outcome = time.monotonic(), Outcome()
        try:
            yield outcome
        finally:
            took = time.monotonic() - began
            self.buckets[next((i for i, bound in enumerate(SECONDS) if took <= bound), len(SECONDS))] += 1
            self.sum_seconds += took
            self.results[outcome.result] += 1


class Outcome:
    result = "canceled"
