"""Exponential back-off per key: one second after the first failure, doubled for each further one, at most a minute."""

from __future__ import annotations

from collections.abc import Set
from typing import Generic, TypeVar

from tidemark_operator.orchestrator.local.supervised_process import backoff_ms

T = TypeVar("T")


class KeyedBackoff(Generic[T]):
    """Failures by key. `now` is in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._failures: dict[T, int] = {}
        self._not_before: dict[T, float] = {}

    def failed(self, what: T, now: float) -> None:
        self._failures[what] = self._failures.get(what, 0) + 1
        self._not_before[what] = now + backoff_ms(self._failures[what]) / 1000

    def forget(self, what: T) -> None:
        self._failures.pop(what, None)
        self._not_before.pop(what, None)

    def is_due(self, what: T, now: float) -> bool:
        return now >= self._not_before.get(what, now)

    def keep(self, known: Set[T]) -> None:
        """Forgets the rest."""
        for gone in self._failures.keys() - known:
            self.forget(gone)
