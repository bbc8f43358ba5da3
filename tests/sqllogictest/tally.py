"""The results of a run: counts, and a bounded list of failures.

A file may have tens of thousands of records, each in three modes: those that passed are only counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.sqllogictest.first_pass import FAILED, PASSED, UNSUPPORTED
from tests.sqllogictest.runner import Outcome

KINDS = (PASSED, FAILED, UNSUPPORTED)
MOST_SHOWN = 20
MOST_LISTED = 1_000
_MOST_REASONS = 5_000


class Tally:
    """Outcomes, counted as they come."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[Outcome] = []
        self._reasons: Counter[str] = Counter()
        self.terminated = False

    def add(self, outcome: Outcome) -> None:
        self.counts[outcome.kind] += 1
        if outcome.kind == FAILED and len(self.failures) < MOST_LISTED:
            self.failures.append(outcome)
        elif outcome.kind == UNSUPPORTED and (outcome.reason in self._reasons or len(self._reasons) < _MOST_REASONS):
            self._reasons[outcome.reason] += 1

    def __str__(self) -> str:
        return ", ".join(f"{self.counts[kind]} {kind}" for kind in KINDS)

    def summary(self) -> dict[str, Any]:
        """The text of the last line."""
        ended = {"terminated": True} if self.terminated else {}
        counts = {kind: self.counts[kind] for kind in KINDS}
        return {**counts, **ended, "failures": list(map(_failure, self.failures))}

    def explained(self) -> list[str]:
        """Failures in full, and why the rest is not supported, by reason."""
        lines = [
            f"{o.place} ({o.mode}): {o.reason}\n  {o.sql}\n  expected: {o.expected}\n  found:    {o.found}"
            for o in self.failures[:MOST_SHOWN]
        ]
        if (more := self.counts[FAILED] - MOST_SHOWN) > 0:
            lines.append(f"and {more} more")
        return lines + [f"{n} times unsupported: {reason}" for reason, n in self._reasons.most_common(MOST_SHOWN)]


def _failure(outcome: Outcome) -> dict[str, Any]:
    return {
        "file": str(outcome.place.file),
        "line": outcome.place.line,
        "mode": outcome.mode,
        "sql": outcome.sql,
        "reason": outcome.reason,
        "expected": outcome.expected,
        "found": outcome.found,
    }
