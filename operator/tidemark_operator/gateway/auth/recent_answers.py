"""Answers of the API server that are kept for a moment."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tidemark_operator.lru_dict import LruDict

TTL_SECONDS, MAX_ANSWERS = 10.0, 4096
V = TypeVar("V")


class RecentAnswers(Generic[V]):
    """A cache of the newest MAX_ANSWERS answers, each for TTL_SECONDS. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: LruDict[Hashable, tuple[float, V]] = LruDict(MAX_ANSWERS)

    def get(self, key: Hashable) -> V | None:
        found = self._answers.get(key)
        return None if found is None or self._clock() - found[0] > TTL_SECONDS else found[1]

    def put(self, key: Hashable, value: V) -> None:
        self._answers[key] = (self._clock(), value)
