"""The input of a continual task that reads its own output: how far a step may go, and the parts it reads.

    watched    . . 5 . . . 9 . . 12 . .        changes at 5, 9, 12; complete up to 20
    written    [0 ........... 9)               the upper of the output
    a step     [6 ............... 10)          one change that is not written yet, 9, and the quiet times around it

At time t the task reads its output as of before t. A step therefore needs all output before its last change. The shard
has it once every earlier change is written, since nothing is added at quiet times. Changes that are written already (by
another replica, or before a restart) form one step.

Older revisions may have watched another table and write at other times. So the shard is fenced against them before it
is read.
"""

from __future__ import annotations

import numpy as np

from tidemark_persist import TIME, FilePart, Lease, read_part
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription, ShardMetadata
from tidemark_replica.shards.shards import ShardHandles


class SelfReadInput:
    """The own output of one dataflow; used on a pool, one call at a time."""

    def __init__(
        self, id: GlobalId, shard: ShardMetadata, watched: ShardMetadata, as_of: int, handles: ShardHandles
    ) -> None:
        self.id = id
        self._shard, self._watched, self._as_of, self._handles = shard, watched, as_of, handles
        self._fenced: WriterTerm | None = None
        self._written = 0
        self._epoch: int | None = None
        """The epoch of the output, as of the beginning of the hydration."""
        self._times, self._known = np.empty(0, np.int64), as_of + 1
        self.needs = Frontier.minimum()
        """The next step waits until the output is written up to this frontier."""

    @staticmethod
    def of(description: DataflowDescription, handles: ShardHandles) -> SelfReadInput | None:
        """The input of a dataflow that reads its own output; None for others."""
        export = description.continual_task
        if export is None or not isinstance(export.sink, ContinualTaskSink) or export.sink.own is None:
            return None
        sink = export.sink
        watched = next(s.shard for s in description.source_imports if s.id == sink.watches)
        return SelfReadInput(export.sink.own, sink.shard, watched, description.as_of, handles)

    def reach(self, lower: int, upper: int, term: WriterTerm) -> int | None:
        """The upper of a step from `lower` on, at most `upper`; None: the output must be written up to `needs` first.
        Raises PersistError and OSError."""
        shard = self._handles.writer(self._shard)
        if self._fenced != term:
            shard.fence(term)
            self._fenced = term
        self._written = shard.refresh().upper
        self._learn(upper)
        unwritten = self._times[self._times < upper]
        reach = upper if len(unwritten) == 0 else int(unwritten[0]) + 1
        if reach > lower:
            return reach
        self.needs = Frontier.at(reach)
        return None

    def hydration(self, upper: int, leases: list[Lease]) -> list[FilePart]:
        """The parts of the contents at the as_of, and of later output that a step up to `upper` reads."""
        if self._written == 0:
            return []
        shard = self._handles.reader(self._shard.location, self._shard.shard_id)
        self._epoch = shard.epoch
        leases.append(shard.lease())
        return [*shard.snapshot_parts(min(self._as_of, self._written - 1)), *self._listen(self._as_of + 1, upper)]

    def step(self, lower: int, upper: int) -> list[FilePart]:
        """The parts that a step over [lower, upper) reads: output at times one millisecond earlier."""
        return self._listen(max(lower - 1, self._as_of + 1), upper)

    def _listen(self, start: int, upper: int) -> list[FilePart]:
        end = min(upper - 1, self._written)
        shard = self._handles.reader(self._shard.location, self._shard.shard_id)
        return shard.listen(start, end, self._epoch) if start < end else []

    def _learn(self, upper: int) -> None:
        """Reads the times of the watched shard's changes up to `upper`, and drops those that are written."""
        found = [self._times]
        if upper > self._known:
            watched = self._handles.reader(self._watched.location, self._watched.shard_id)
            for part in watched.listen(self._known, upper):
                found += [np.unique(batch.column(0).to_numpy()) for batch in read_part(part, columns=[TIME])]
            self._known = upper
        times = np.unique(np.concatenate(found))
        self._times = times[times >= self._written]
