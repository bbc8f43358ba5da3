"""Conditions of an object's status, for `kubectl wait` and for people.

A Verdict is the present state of one condition. A condition in status adds history: the time of its last transition,
and the generation of the spec. Merging keeps `lastTransitionTime` while the status is unchanged, and writes the
observed generation into every condition, so that `kubectl wait` after an edit does not accept the old answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemark_operator.resources.conditions.frontier import timestamp

_MOST_MESSAGE = 2048
"""Longest message in characters. Longer ones are cut: every watcher receives each status."""


class ConditionStatus(Enum):
    """The status of a condition, as the API server writes it."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The present state of one condition. `reason` is CamelCase; docs/reference/conditions.md lists the reasons."""

    type: str
    status: ConditionStatus
    reason: str
    message: str

    @property
    def holds(self) -> bool:
        return self.status is ConditionStatus.TRUE


def yes(type: str, reason: str, message: str = "") -> Verdict:
    """The condition `type` is True."""
    return Verdict(type, ConditionStatus.TRUE, reason, message)


def no(type: str, reason: str, message: str = "") -> Verdict:
    """The condition `type` is False."""
    return Verdict(type, ConditionStatus.FALSE, reason, message)


def unknown(type: str, reason: str, message: str = "") -> Verdict:
    """The condition `type` is Unknown."""
    return Verdict(type, ConditionStatus.UNKNOWN, reason, message)


def because(type: str, cause: Verdict) -> Verdict:
    """`type` is False for the reason and message of `cause`, the first condition of the chain that fails."""
    return no(type, cause.reason, cause.message)


def merge_conditions(
    old: Iterable[Mapping[str, Any]], verdicts: Sequence[Verdict], generation: int, now_ms: int
) -> list[dict[str, Any]]:
    """The conditions to write: exactly those of `verdicts`, in that order. `now_ms`: milliseconds since 1970."""
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
    """Whether the condition `type` is True for this generation of the spec, or for a later one."""
    return any(
        condition.get("type") == type
        and condition.get("status") == "True"
        and condition.get("observedGeneration", 0) >= generation
        for condition in conditions
    )
