"""Pauses of dataflows that other programs' commits make begin anew again and again.

    commit ── at once ──► computed again ── commit ── 1 s ──► computed again ── commit ── 2 s ──► ... 300 s
              QUIET_SECONDS without such a commit since the last pause ended: at once

Nothing is stored: a new process begins without pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from tidemark_replica.dataflow.reconciliation import ExportIds

FIRST_SECONDS = 1.0
MAX_SECONDS = 300.0
QUIET_SECONDS = 60.0
_DOUBLINGS_MAX = 16


@dataclass(frozen=True)
class Pause:
    """`begun`: how often the dataflow began anew in a row; `seconds`: of the last pause; `until`: its end, by the
    clock."""

    begun: int
    seconds: float
    until: float


class RecomputationPauses:
    """The last pause of each dataflow, by its exports. `clock`: in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[ExportIds, Pause] = {}

    def begin(self, exports: ExportIds) -> Pause:
        """The dataflow has ended for another program's commit: begins its next pause, which may be of no length."""
        now, last = self._clock(), self._last.get(exports)
        begun = 1 if last is None or now - last.until >= QUIET_SECONDS else last.begun + 1
        seconds = min(FIRST_SECONDS * 2 ** min(begun - 2, _DOUBLINGS_MAX), MAX_SECONDS) if begun > 1 else 0.0
        pause = self._last[exports] = Pause(begun, seconds, now + seconds)
        return pause

    def present(self, exports: ExportIds) -> Pause | None:
        """The pause of the dataflow, unless it has passed."""
        last = self._last.get(exports)
        return last if last is not None and self._clock() < last.until else None

    def keep_only(self, wanted: Collection[ExportIds]) -> None:
        """Forgets all other dataflows."""
        self._last = {exports: last for exports, last in self._last.items() if exports in wanted}
