"""How a materialized view is published as an ordinary table, as manifests write it.

publish: {every: 1m, retention: 24h}        every: onCommit publishes each change
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.fields import Fields

ON_COMMIT = "onCommit"
DEFAULT_EVERY, DEFAULT_RETENTION = "1m", "24h"
_HOUR_MS = 3_600_000
_MORE_HISTORY_MS = 300_000


@dataclass(frozen=True, slots=True)
class Publish:
    """`every_ms`: 0 for each change. `retention_hours`: how long replaced files stay, in whole hours."""

    every_ms: int
    retention_hours: int

    @classmethod
    def parse(cls, publish: Fields) -> Publish:
        on_commit = publish.text("every", DEFAULT_EVERY) == ON_COMMIT
        return cls(
            every_ms=0 if on_commit else duration_ms(publish, "every", DEFAULT_EVERY),
            retention_hours=-(-duration_ms(publish, "retention", DEFAULT_RETENTION) // _HOUR_MS),
        )

    @property
    def history_ms(self) -> int:
        """How far the view's since trails its upper at least, in milliseconds. A publisher that was away for less still
        finds the changes that it has not published."""
        return 2 * self.every_ms + _MORE_HISTORY_MS
