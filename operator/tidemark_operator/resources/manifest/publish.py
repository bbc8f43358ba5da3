"""How a materialized view is published as an ordinary table, as manifests write it.

publish: {every: 1m, retention: 24h}        every: onCommit publishes each change
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.fields import Fields

ON_COMMIT = "onCommit"
_HOUR_MS = 3_600_000
_MORE_HISTORY_MS = 300_000


@dataclass(frozen=True, slots=True)
class Publish:
    """`every_ms`: 0 for each change. `retention_hours`: how long replaced files stay, in whole hours."""

    every_ms: int
    retention_hours: int

    @classmethod
    def parse(cls, publish: Fields) -> Publish:
        every = publish.text("every", "1m")
        return cls(
            every_ms=0 if every == ON_COMMIT else duration_ms(publish, "every", "1m"),
            retention_hours=-(-duration_ms(publish, "retention", "24h") // _HOUR_MS),
        )

    @property
    def history_ms(self) -> int:
        """How far the view's since trails its upper at least: so long a publisher may be away, or busy, and still
        finds the changes that it has not published."""
        return 2 * self.every_ms + _MORE_HISTORY_MS
