"""How a materialized view is published as an ordinary table, as manifests write it.

publish: {every: 1m, retention: 24h, onError: keep, changeDataFeed: false}

`every: onCommit` publishes each change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol.plan.publish import PublishedView

ON_COMMIT = "onCommit"
DEFAULT_EVERY, DEFAULT_RETENTION = "1m", "24h"
_HOUR_MS = 3_600_000
_MORE_HISTORY_MS = 300_000


class OnError(Enum):
    """What a published table has while its view has errors: its last right rows, or none."""

    KEEP = "keep"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Publish:
    """`every_ms`: 0 for each change. `retention_hours`: how long replaced files stay, in whole hours."""

    every_ms: int
    retention_hours: int
    on_error: OnError = OnError.KEEP
    change_data_feed: bool = False

    @classmethod
    def parse(cls, publish: Fields) -> Publish:
        return cls(
            every_ms=every_ms(publish, DEFAULT_EVERY),
            retention_hours=-(-duration_ms(publish, "retention", DEFAULT_RETENTION) // _HOUR_MS),
            on_error=publish.choice("onError", OnError, OnError.KEEP),
            change_data_feed=publish.flag("changeDataFeed", False),
        )

    def view(self, location: str, owner: str) -> PublishedView:
        """The same, as plans have it. `owner`: the view's name in all namespaces."""
        empty = self.on_error is OnError.EMPTY
        return PublishedView(location, owner, self.every_ms, self.retention_hours, empty, self.change_data_feed)

    @property
    def history_ms(self) -> int:
        """How far the view's since trails its upper at least, in milliseconds. A publisher that was away for less still
        finds the changes that it has not published."""
        return history_ms(self.every_ms)


def every_ms(fields: Fields, default: str) -> int:
    """The field `every`: the least milliseconds between two commits, 0 for each change."""
    return 0 if fields.text("every", default) == ON_COMMIT else duration_ms(fields, "every", default)


def history_ms(every_ms: int) -> int:
    """How far the since of a view trails its upper at least, where it is written elsewhere every so many ms."""
    return 2 * every_ms + _MORE_HISTORY_MS
