"""Pauses between two attempts at what others have to answer: a registry, or the topic of transactions."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from tidemark_replica.storage.schema_registry import PAUSE_SECONDS

PAUSE_SECONDS_MAX = 30.0
"""The time that a table waits for the registry at most, before it is tried again."""


@dataclass(frozen=True)
class AnswerWait:
    """A table that waits for the registry, or all for the topic of transactions: `until` when, `seconds` long, and
    `why`."""

    until: float
    seconds: float
    why: str

    @staticmethod
    def after(before: AnswerWait | None, why: str) -> AnswerWait:
        """The next wait: each is twice as long as the one before, as each attempt opens a client anew."""
        seconds = PAUSE_SECONDS if before is None else min(2 * before.seconds, PAUSE_SECONDS_MAX)
        return AnswerWait(monotonic() + seconds, seconds, why)
