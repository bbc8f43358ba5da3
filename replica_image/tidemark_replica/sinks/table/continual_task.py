"""The sink of a continual task: appends the task's output at each time to a shard, exactly once.

    steps ──staged files──► [upper of the shard, time of an error) ──► compare-and-append

The sink never compares and never corrects: the shard holds what the task did, also under earlier revisions of its SQL.
The output at a time is the same on every replica, so the first append is the one that all others would make, and output
for times before the shard's upper is skipped. An append has all updates of the times that it moves the upper over, so
no time is written twice or in part.

After an error at time t the output at t is unknown. Nothing is written at t or later: the export reports the error and
stands still until its SQL changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_replica.sinks.sink_progress import SinkProgress, Staged
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink, new_commit_id
from tidemark_replica.telemetry.error_status import Errors


class ContinualTaskProgress(SinkProgress):
    """Like SinkProgress, but writes nothing from the first error on."""

    def __init__(self, as_of: int) -> None:
        super().__init__(as_of, new_commit_id, synced=True)
        self._errors: dict[int, Errors] = {}

    def stage(self, staged: Staged) -> None:
        super().stage(staged)
        self._errors.update(staged.errors)

    def observe(self, upper: int, term: int) -> None:
        """Drops errors at times before the upper: an earlier revision has written those times."""
        super().observe(upper, term)
        self._errors = {time: errors for time, errors in self._errors.items() if time >= (self.upper or 0)}

    @property
    def reach(self) -> int:
        return min([self.frontier, *self._errors])

    @property
    def standing_errors(self) -> Mapping[str, int]:
        """The errors at the time at which the task stands still; empty while it goes on."""
        return self._errors[min(self._errors)] if self._errors else {}


class ContinualTaskSink(MaterializedViewSink):
    """Runs on the command loop; appends on a pool, one at a time."""

    corrects = False
    _progress: ContinualTaskProgress

    @property
    def is_full(self) -> bool:
        """Output after an error is not needed."""
        return super().is_full or bool(self._progress.standing_errors)

    @property
    def standing_errors(self) -> Errors | None:
        return Errors(self._progress.standing_errors)
