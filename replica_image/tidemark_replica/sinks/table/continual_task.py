"""The sink of a continual task: adds to a shard what the task gives at each time, exactly once.

    steps ──staged files──► [upper of the shard, where an error stands) ──► compare-and-append

It never compares and never corrects: what the shard holds is what the task did, also under an earlier revision of its
SQL. The task gives the same at the same time wherever it runs, so whoever appends first has appended what all others
would; what was computed for times before the shard's upper is skipped. An append is all of the updates of the times
that it moves the upper over, so no time is done twice or in part, whenever a process ends.

An error at time t means that what the task does at t is not known. Nothing is written at t or later: the export says
so, and stands still until its SQL is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.events.jobs import Pool
from tidemark_replica.shards.shards import ShardHandles, ShardWatch
from tidemark_replica.sinks.sink_progress import SinkProgress, Staged
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink, new_commit_id
from tidemark_replica.telemetry.error_status import Errors


class ContinualTaskProgress(SinkProgress):
    """What may be written ends where an error stands."""

    def __init__(self, as_of: int) -> None:
        super().__init__(as_of, new_commit_id, synced=True)
        self._errors: dict[int, Errors] = {}

    def stage(self, staged: Staged) -> None:
        super().stage(staged)
        self._errors.update(staged.errors)

    def observe(self, upper: int, term: int) -> None:
        """Times before the upper are written, by an earlier revision where this one fails."""
        super().observe(upper, term)
        self._errors = {time: errors for time, errors in self._errors.items() if time >= (self.upper or 0)}

    @property
    def reach(self) -> int:
        return min([self.frontier, *self._errors])

    @property
    def standing_errors(self) -> Mapping[str, int]:
        """The errors at the time at which it stands still; none while it goes on."""
        return self._errors[min(self._errors)] if self._errors else {}


class ContinualTaskSink(MaterializedViewSink):
    """Lives on the worker's thread; appends on a pool, one at a time."""

    def __init__(
        self,
        id: GlobalId,
        shard: ShardMetadata,
        as_of: Frontier,
        handles: ShardHandles,
        watch: ShardWatch,
        jobs: Pool,
        respond: Callable[[Response], None],
        moved: Callable[[], None] | None = None,
    ) -> None:
        self._task = ContinualTaskProgress(as_of.encode())
        super().__init__(id, shard, as_of, handles, watch, jobs, respond, moved, self._task)

    @property
    def is_full(self) -> bool:
        """What comes after an error is not wanted."""
        return super().is_full or bool(self._task.standing_errors)

    @property
    def standing_errors(self) -> Errors | None:
        return Errors(self._task.standing_errors)
