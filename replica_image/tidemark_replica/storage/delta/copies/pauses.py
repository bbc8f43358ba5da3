"""The pauses between copies of one table that follow one another closely.

copy ends ► gap ► copy ends ► 1 s ► copy ends ► 2 s ► copy ends ► 4 s ... 30 s

Without them a table whose writer vacuums at once would be read from its begin again and again.
"""

from __future__ import annotations

from time import monotonic

PAUSE_SECONDS, PAUSE_SECONDS_MAX = 1.0, 30.0
QUIET_SECONDS = 60.0
"""A copy that begins so long after the pause of the last one does not follow it closely."""


class CopyPauses:
    """The pauses before the next copies, by table. A table without a copy so far has no pause."""

    def __init__(self) -> None:
        self._due: dict[str, tuple[float, float]] = {}
        """The earliest begin of the next copy (monotonic seconds), and the length of the pause before it."""

    def note_begin(self, name: str) -> None:
        """A copy of the table begins."""
        at, _ = self._due.get(name, (0.0, 0.0))
        if monotonic() > at + QUIET_SECONDS:
            self._due.pop(name, None)

    def note_end(self, name: str) -> None:
        """The copy of the table is bound, or has failed."""
        pause = 0.0
        if name in self._due:
            pause = min(max(2 * self._due[name][1], PAUSE_SECONDS), PAUSE_SECONDS_MAX)
        self._due[name] = monotonic() + pause, pause

    def seconds_left(self, name: str) -> float:
        """The seconds until a copy of the table may begin; 0 if at once."""
        return max(self._due.get(name, (0.0, 0.0))[0] - monotonic(), 0.0)
