"""Conditions: what `kubectl wait` and people look at.

A Verdict is what is true now; a Condition is a Verdict with its history: since when, and of which generation of
the spec. Merging keeps `lastTransitionTime` while the status stays as it was, and stamps every condition with the
generation that was looked at, so that `kubectl wait` after an edit does not take the old answer for the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemark_operator.resources.conditions.frontier import timestamp

_MOST_MESSAGE = 2048
"""Longer messages are cut: status is read by everybody, often."""


class Status(Enum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is true now of one condition."""

    type: str
    status: Status
    reason: str
    message: str

    @property
    def holds(self) -> bool:
        return self.status is Status.TRUE


def yes(type: str, reason: str, message: str = "") -> Verdict:
    return Verdict(type, Status.TRUE, reason, message)


def no(type: str, reason: str, message: str = "") -> Verdict:
    return Verdict(type, Status.FALSE, reason, message)


def unknown(type: str, reason: str, message: str = "") -> Verdict:
    return Verdict(type, Status.UNKNOWN, reason, message)


def because(type: str, cause: Verdict) -> Verdict:
    """Not `type`, for the reason that `cause` gives: the first link of the chain is the one to mend."""
    return no(type, cause.reason, cause.message)


def merge_conditions(
    old: Iterable[Mapping[str, Any]], verdicts: Sequence[Verdict], generation: int, now_ms: int
) -> list[dict[str, Any]]:
    """The conditions to write: exactly those of `verdicts`, in that order."""
    before = {condition.get("type"): condition for condition in old}
    return [_condition(verdict, before.get(verdict.type), generation, now_ms) for verdict in verdicts]


def _condition(verdict: Verdict, old: Mapping[str, Any] | None, generation: int, now_ms: int) -> dict[str, Any]:
    unchanged = old is not None and old.get("status") == verdict.status.value
    since = old.get("lastTransitionTime") if old is not None and unchanged else None
    return {
        "type": verdict.type,
        "status": verdict.status.value,
        "reason": verdict.reason,
        "message": _cut(verdict.message),
        "lastTransitionTime": since or timestamp(now_ms),
        "observedGeneration": generation,
    }


def _cut(message: str) -> str:
    return message if len(message) <= _MOST_MESSAGE else message[: _MOST_MESSAGE - 2] + " …"


def holds(conditions: Iterable[Mapping[str, Any]], type: str, generation: int) -> bool:
    """Whether a status says so of this generation (or a later one) of the spec."""
    return any(
        condition.get("type") == type
        and condition.get("status") == "True"
        and condition.get("observedGeneration", 0) >= generation
        for condition in conditions
    )
