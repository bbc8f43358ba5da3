"""The sink of a materialized view with a refresh schedule: a view's, but for what is written when."""

from __future__ import annotations

from collections.abc import Callable

from tidemark_protocol.dataflow import ShardMetadata
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.responses import Response
from tidemark_replica.jobs import Pool
from tidemark_replica.shards import ShardHandles, ShardWatch
from tidemark_replica.sinks.materialized_view import MaterializedViewSink, new_commit_id
from tidemark_replica.sinks.refresh_progress import RefreshProgress
from tidemark_replica.sinks.refreshes import Refreshes


class RefreshedViewSink(MaterializedViewSink):
    """Lives on the worker's thread; appends on a pool, one at a time."""

    def __init__(
        self,
        id: GlobalId,
        shard: ShardMetadata,
        refreshes: Refreshes,
        as_of: Frontier,
        handles: ShardHandles,
        watch: ShardWatch,
        jobs: Pool,
        respond: Callable[[Response], None],
        moved: Callable[[], None] | None = None,
    ) -> None:
        self._refreshed = RefreshProgress(as_of.encode(), new_commit_id, refreshes)
        super().__init__(id, shard, as_of, handles, watch, jobs, respond, moved, self._refreshed)

    def inputs_at(self, upper: Frontier) -> Frontier:
        """All inputs of the dataflow are complete so far. Up to where the view needs it to step."""
        self._refreshed.inputs_at(upper.encode())
        return Frontier.decode(self._refreshed.step_to(upper.encode()))
