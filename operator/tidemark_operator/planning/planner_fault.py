"""What the planner failed at, rather than refused: the same text may be planned another time, but each try may cost a
planner process, so the pauses between them grow.
"""

from __future__ import annotations

from tidemark_protocol.messages.planning import Refused

PLANNERS_FAULT = ("TIMEOUT", "INTERNAL")
FIRST_PAUSE_MS = 5_000
MAX_PAUSE_MS = 600_000


def is_planners_fault(refused: Refused) -> bool:
    """It took too long, or failed: it may have been busy."""
    return any(diagnostic.code in PLANNERS_FAULT for diagnostic in refused.diagnostics)


def pause_ms(tried: int) -> int:
    """How long it is not asked again what it failed at `tried` times in a row."""
    return min(MAX_PAUSE_MS, FIRST_PAUSE_MS << min(tried - 1, 10))
