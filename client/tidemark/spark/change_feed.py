"""A stream of changes: each micro-batch has those of its times, and Spark's checkpoint has the last time.

    offset {"time": 1000, "reads": "5f2a81c09b3de674"}   all changes up to 1000 were read; the relations' fingerprint
    micro-batch from 1000 to 3000   ──► subscribe as of 1000, without the rows as of 1000, up to and including 3000
    the first one, to 1000          ──► subscribe as of 1000, with the rows as of 1000, up to and including 1000

A micro-batch that is repeated after a crash has the same changes, since the checkpoint has its end, and the end
of the one before. Spark does not store where the first one begins: it always begins at NOTHING. Without the snapshot
it is empty, and its end is where the stream begins.
A micro-batch can be read while its first time can be. The driver holds that time by a lease (held_times.py) from one
micro-batch to the next one; of a stream that is away, `readPolicy.lag` of the instance says for how long it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidemark.changes import Batches, subscribed
from tidemark.errors import Error, GatewayFailed, NotSupportedError, OffsetTooOld, RelationChanged, ViewInError
from tidemark.held_times import HeldTimes, new_lease
from tidemark.spark.columns import check_columns
from tidemark.spark.gateway_retry import retried
from tidemark.spark.options import ReadOptions
from tidemark.spark.rows import arrow_schema, fitting
from tidemark_protocol.pb.gateway_pb2 import SubscribeHeader
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
        self._held: HeldTimes | None = None
        """None: the driver holds no time yet, or this is a task."""
        self._relations: tuple[str, ...] = ()

    def initialOffset(self) -> Offset:
        """The same at each call: Spark calls it again where it repeats the first micro-batch."""
        return {"time": NOTHING, "reads": ""}

    def latestOffset(self, start: Offset, limit: object) -> Offset:
        if start["time"] == NOTHING:
            return retried(self._initial_offset)
        newest = retried(self._newest) if self._end is None else self._end
        self._hold(start["time"])
        self._times.keep({start["time"], newest})
        return {"time": max(newest, start["time"]), "reads": start["reads"]}

    def stop(self) -> None:
        """Let go of the times that are held."""
        if self._held is not None:
            self._held.close()

    @property
    def _times(self) -> HeldTimes:
        if self._held is None:
            self._held = HeldTimes(self._options.connect)
        return self._held

    def _hold(self, time: int) -> None:
        """Hold the time up to which changes were read, which a query of before may have done."""
        if self._relations and time not in self._times:
            with suppress(Error), self._options.connect() as connection:
                self._times.hold(connection, time, self._relations)

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = retried(self._newest)

    def _newest(self) -> int:
        """The newest complete time, which is held. Raises ViewInError: the view has rows in error at it."""
        lease = "" if self._relations else new_lease()  # Spark asks often, and most times are held already
        with self._options.connect() as connection, connection.cursor() as cursor:
            try:
                at = cursor.execute(f"{self._options.select} LIMIT 0", lease=lease).as_of
            except Error as error:
                raise self._named(error) from None
            assert at is not None
            if lease:
                self._relations = cursor.leased
                self._times.take(at, lease, cursor.leased)
            else:
                self._times.hold(connection, at, self._relations)
        return at

    def _initial_offset(self) -> Offset:
        """The time at which the stream begins, and what is read at it."""
        with self._options.connect() as connection:
            asked = connection.subscribe_request(self._options.subject, as_of=self._options.as_of, snapshot=False)
            with subscribed(connection.link, asked) as (header, _):
                if not header.reads:
                    raise NotSupportedError(
                        "the operator is older than this client: it does not say what a subscribe reads"
                    )
                self._times.hold(connection, header.as_of, header.relations)
                return {"time": header.as_of, "reads": header.reads}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """One; none where there is nothing to read: no time has passed, or the stream begins without the snapshot."""
        begins_empty = start["time"] == NOTHING and not self._options.snapshot
        return [] if begins_empty or start["time"] >= end["time"] else [InputPartition((start, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All changes after the first time, up to and including the second one.

        Raises:
            OffsetTooOld: the first time cannot be read any more.
            RelationChanged: the relations, or their columns, are not those that the stream has read before.
            ViewInError: the view has rows in error at one of the times.
            GatewayFailed: the subscribe ended too soon.
        """
        start, end = partition.value
        try:
            header, batches, opened = retried(lambda: self._opened(start, end))
            with opened:
                self._check(header, end)
                yield from self._changes(batches, end)
        except Error as error:
            raise self._named(error) from None

    def _opened(self, start: Offset, end: Offset) -> tuple[SubscribeHeader, Batches, ExitStack]:
        """The subscribe, which ends with the stack."""
        is_first = start["time"] == NOTHING
        with ExitStack() as stack:
            connection = stack.enter_context(self._options.connect())
            asked = connection.subscribe_request(
                self._options.subject,
                as_of=end["time"] if is_first else start["time"],
                up_to=end["time"] + 1,
                snapshot=is_first,
            )
            header, batches = stack.enter_context(subscribed(connection.link, asked))
            return header, batches, stack.pop_all()

    def _check(self, header: SubscribeHeader, end: Offset) -> None:
        if header.reads != end["reads"]:
            raise RelationChanged(
                f"RELATION_CHANGED: {self._options.subject} is not what the stream has read before (it was edited, "
                "or made again), so its changes are none of the rows that the stream has: begin with a new "
                "checkpoint and an empty target"
            )
        names = zip(header.column_names, header.column_types, strict=True)
        check_columns(self._options.subject, self._schema, [*names, *CHANGE_COLUMNS.items()])

    def _changes(self, batches: Batches, end: Offset) -> Iterator[pa.RecordBatch]:
        wanted, upper = arrow_schema(self._schema), 0
        for batch, data in batches:
            upper = batch.upper
            if data:
                updates = unseen(pa.ipc.open_stream(data).read_all(), batch.lower, batch.lower_part)
                for part in updates.to_batches():
                    yield _with_change_columns(part, wanted)
        if upper <= end["time"] and upper != EMPTY:
            raise GatewayFailed(f"the subscribe ended before {end['time']} was complete: Spark repeats the micro-batch")

    def _named(self, error: Error) -> Error:
        """The error by a name, where it has one, with what to do."""
        if is_in_error(error):
            return ViewInError(
                f"VIEW_IN_ERROR: {self._options.subject} has, or had, rows that cannot be computed: {error}. Correct "
                "the data, then begin with a new checkpoint and an empty target",
                error.code,
            )
        if is_too_old(error):
            return OffsetTooOld(
                f"OFFSET_TOO_OLD: changes of {self._options.subject} cannot be read from the checkpoint's time on: "
                f"{error}. Begin with a new checkpoint and an empty target; a longer readPolicy.lag of the "
                "ComputeInstance leaves more time between micro-batches",
                error.code,
            )
        return error


def is_in_error(error: Error) -> bool:
    """Whether the view has rows that cannot be computed: the replica says that its result or its subscribe "is in
    error". Its SQLSTATE does not tell it from an answer that is too large, or a subscribe whose input was replaced."""
    return error.code is grpc.StatusCode.FAILED_PRECONDITION and " is in error: " in str(error)


def is_too_old(error: Error) -> bool:
    """Whether the gateway says that a time cannot be read "any more": it refuses one that is not complete yet by the
    same code and SQLSTATE."""
    return error.code is grpc.StatusCode.OUT_OF_RANGE and " any more: " in str(error)


def _with_change_columns(updates: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    diff = updates.column(DIFF_COLUMN)
    time = pc.multiply(updates.column(TIME_COLUMN), 1000).cast(pa.timestamp("us", "UTC"))
    kind = pc.if_else(pc.greater(diff, 0), "insert", "delete")
    columns = [*updates.columns[:-3], kind, diff, time]
    return fitting(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)
