"""Answers that are the planner's fault, and not the SQL's. The same SQL may be planned another time. Each attempt may
cost a planner process, so the pauses between attempts grow."""

from __future__ import annotations

from tidemark_protocol.messages.planning import Refused

PLANNERS_FAULT = ("TIMEOUT", "INTERNAL")
FIRST_PAUSE_MS = 5_000
MAX_PAUSE_MS = 600_000


def is_planners_fault(refused: Refused) -> bool:
    """Whether the planner took too long, or failed."""
    return any(diagnostic.code in PLANNERS_FAULT for diagnostic in refused.diagnostics)


def pause_ms(tried: int) -> int:
    """The pause in milliseconds before the next attempt, after `tried` failed ones in a row."""
    return min(MAX_PAUSE_MS, FIRST_PAUSE_MS << min(tried - 1, 10))
