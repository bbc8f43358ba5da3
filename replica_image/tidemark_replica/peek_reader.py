"""Peeks read for the command loop: from an index of this replica or from a shard, as an Arrow IPC stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidemark_protocol.commands import Peek, ShardTarget
from tidemark_protocol.frames import MAX_MESSAGE_BYTES
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.responses import PeekRows
from tidemark_replica.errors import ReplicaError
from tidemark_replica.finishing import finished
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.render.open_batches import OpenBatches
from tidemark_replica.render.peek import Reading, read_index, read_shard

# an answer travels as one message: room is left for its envelope, and for what Arrow's stream adds to the rows
ANSWER_BYTES_MAX = MAX_MESSAGE_BYTES - 1024 * 1024


class PeekReader:
    """Called on a pool. The session is started only by peeks that need a job."""

    def __init__(
        self,
        session: Callable[[], Any],
        find: Callable[[GlobalId], IndexTrace | None],
        batches: OpenBatches,
        *,
        arrow: bool = True,
    ) -> None:
        self._session, self._find, self._batches, self._arrow = session, find, batches, arrow

    def __call__(self, peek: Peek, max_result_bytes: int) -> PeekRows:
        """The answer, finished; raises what `render.peek` raises, and ReplicaError for an index that is gone."""
        reading = Reading(self._session, min(max_result_bytes, ANSWER_BYTES_MAX), self._batches, self._arrow)
        if isinstance(peek.target, ShardTarget):
            rows = read_shard(reading, peek.target.shard, peek)
        else:
            index = self._find(peek.target.id)
            if index is None:
                raise ReplicaError(f"index {peek.target.id} is not here, or not yet")
            rows = read_index(reading, index, peek)
        answer = finished(rows, peek.finishing)
        return PeekRows(_stream(answer), answer.num_rows)


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data
