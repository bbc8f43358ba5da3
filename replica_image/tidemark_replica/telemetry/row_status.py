"""Reports about how many rows an export has, which plans of its readers are chosen by.

    Status rows {rows: 4096}    updates in the files of an index or a table, rounded down to a power of two

It is sent where it has changed, at most every REPORT_SECONDS. An operator without it plans as without row counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status
from tidemark_protocol.plan.row_estimates import exponent
from tidemark_replica.render.index import IndexTrace

KIND = "rows"
REPORT_SECONDS = 10.0


def rows_of(index: IndexTrace) -> int:
    """The updates in the batches of an index."""
    return sum(batch.rows for batch in index.manifest.batches)


class RowStatus:
    """The rows of one export. All methods run on the command loop."""

    def __init__(
        self, id: GlobalId, respond: Callable[[Response], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._id, self._respond, self._clock = id, respond, clock
        self._counted_at = -REPORT_SECONDS

    def report(self, count: Callable[[], int | None]) -> None:
        """Counts the rows if REPORT_SECONDS have passed, and sends the status."""
        now = self._clock()
        if now - self._counted_at < REPORT_SECONDS or (rows := count()) is None:
            return
        self._counted_at = now
        self._respond(Status(self._id, KIND, {"rows": str(1 << exponent(rows) if rows else 0)}))
