"""A stream of changes: each micro-batch has those of its times, and Spark's checkpoint has the last time.

    offset {"time": 1000, "reads": "5f2a81c09b3de674"}   all changes up to 1000 were read; of which relations
    micro-batch from 1000 to 3000   ──► subscribe, as of 1000, without the rows of then, up to 3000 and with it
    the first one, to 1000          ──► subscribe, as of 1000, with the rows of then, up to 1000 and with it

A micro-batch that is repeated after a crash has the same changes, since the times of both ends are in the checkpoint.
It is read while its first time can be: `readPolicy.lag` of the instance says for how long that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidemark.changes import subscribed
from tidemark.errors import DataError, GatewayFailed, OffsetTooOld, RelationChanged
from tidemark.spark.options import ReadOptions
from tidemark.spark.rows import arrow_schema, fitting
from tidemark_protocol.pb.gateway_pb2 import SubscribeRequest
from tidemark_protocol.rows.updates import DIFF_COLUMN, TIME_COLUMN, unseen
from tidemark_protocol.times import EMPTY

CHANGE_COLUMNS = {"_change_type": "string", "_diff": "bigint", "_time": "timestamp"}
"""Names and types of the columns that a change has after the row's."""
NOTHING = -1
Offset = dict[str, Any]


class ChangeFeed(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._end: int | None = None
        """The time at which a trigger AvailableNow ends."""

    def initialOffset(self) -> Offset:
        """Nothing was read; without the snapshot, everything up to the first time counts as read."""
        return {"time": NOTHING, "reads": ""} if self._options.snapshot else self._first()

    def latestOffset(self, start: Offset, limit: object) -> Offset:
        if start["time"] == NOTHING:
            return self._first()
        newest = self._newest() if self._end is None else self._end
        return {"time": max(newest, start["time"]), "reads": start["reads"]}

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = self._newest()

    def _newest(self) -> int:
        """The newest complete time."""
        with self._options.connect() as connection, connection.cursor() as cursor:
            at = cursor.execute(f"{self._options.select} LIMIT 0").as_of
        assert at is not None
        return at

    def _first(self) -> Offset:
        """The time at which the stream begins, and what is read at it."""
        with self._options.connect() as connection:
            asked = connection.subscribe_request(self._options.subject, as_of=self._options.as_of, snapshot=False)
            with subscribed(connection.link, asked) as (header, _):
                if not header.reads:
                    raise GatewayFailed(
                        "the operator is older than this client: it does not say what a subscribe reads"
                    )
                return {"time": header.as_of, "reads": header.reads}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [InputPartition((start, end))] if start["time"] < end["time"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All changes after the first time, up to the second one and with it.

        Raises:
            OffsetTooOld: the first time cannot be read any more.
            RelationChanged: what is read is not what was read before.
            GatewayFailed: the subscribe ended too soon.
        """
        start, end = partition.value
        is_first = start["time"] == NOTHING
        with self._options.connect() as connection:
            asked = connection.subscribe_request(
                self._options.subject,
                as_of=end["time"] if is_first else start["time"],
                up_to=end["time"] + 1,
                snapshot=is_first,
            )
            try:
                yield from self._changes(connection.link, asked, end)
            except DataError as error:
                raise OffsetTooOld(
                    f"OFFSET_TOO_OLD: changes of {self._options.subject} from {asked.as_of} on cannot be read: "
                    f"{error}. Begin with a new checkpoint, which has all rows first; a longer readPolicy.lag of the "
                    "ComputeInstance leaves more time between micro-batches",
                    error.code,
                ) from None

    def _changes(self, link: Any, asked: SubscribeRequest, end: Offset) -> Iterator[pa.RecordBatch]:
        wanted, upper = arrow_schema(self._schema), 0
        with subscribed(link, asked) as (header, batches):
            if header.reads != end["reads"]:
                raise RelationChanged(
                    f"RELATION_CHANGED: {self._options.subject} is not what the stream has read before (it was edited, "
                    "or made again), so its changes are none of the rows that the stream has: begin with a new "
                    "checkpoint and an empty target"
                )
            for batch, data in batches:
                upper = batch.upper
                if data:
                    updates = unseen(pa.ipc.open_stream(data).read_all(), batch.lower, batch.lower_part)
                    for part in updates.to_batches():
                        yield _with_change_columns(part, wanted)
        if upper <= end["time"] and upper != EMPTY:
            raise GatewayFailed(f"the subscribe ended before {end['time']} was complete: Spark repeats the micro-batch")


def _with_change_columns(updates: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    diff = updates.column(DIFF_COLUMN)
    time = pc.multiply(updates.column(TIME_COLUMN), 1000).cast(pa.timestamp("us", "UTC"))
    kind = pc.if_else(pc.greater(diff, 0), "insert", "delete")
    columns = [*updates.columns[:-3], kind, diff, time]
    return fitting(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)
