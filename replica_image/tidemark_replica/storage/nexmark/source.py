"""Nexmark as a source: a binding is a range of events.

    remap row  (generator, seed, events_per_second, began, events)     one live row; it counts the events so far

The first binding has no events, and its time is when they begin. A tick has the events before it, so `date_time` is
that of the clock; after a pause a tick catches up MAX_EVENTS of them. The row names all that an event is a function of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, TIME, StagedFile, write_staged
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.plan.ingestion import IngestedTable, NexmarkSource
from tidemark_replica.storage.errors import NotDefinite
from tidemark_replica.storage.nexmark.events import GENERATOR, Auctioneer
from tidemark_replica.storage.nexmark.tables import TABLES
from tidemark_replica.storage.source import Source, SourceShards
from tidemark_replica.values.arrow_types import arrow_schema

MAX_EVENTS = 1_000_000
"""The events of one tick, at most."""
BATCH = 100_000
"""Events whose rows are in memory at a time."""
_BEGAN, _COUNT = "began", "events"


class NexmarkIngestion(Source):
    """The `Source` of a `loadGenerator: {nexmark: ...}`."""

    remap_schema = pa.schema(
        [
            pa.field("generator", pa.string()),
            pa.field("seed", pa.int64()),
            pa.field("events_per_second", pa.int64()),
            pa.field(_BEGAN, pa.int64()),
            pa.field(_COUNT, pa.int64()),
        ]
    )

    def __init__(self, spec: NexmarkSource) -> None:
        self._pinned = (GENERATOR, spec.seed, spec.events_per_second)
        self._began: int | None = None
        self._done = self._due = 0

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        if bound.num_rows == 0:
            self._began, self._done = None, 0
            return
        row = bound.slice(bound.num_rows - 1).to_pylist()[0]
        pinned = (row["generator"], row["seed"], row["events_per_second"])
        if pinned != self._pinned:
            raise NotDefinite(
                f"the data so far come from {pinned}, not {self._pinned}: install that version and restore the"
                " DataSource's options, or make a new DataSource"
            )
        self._began, self._done = row[_BEGAN], row[_COUNT]

    def discover(self, time: Time) -> pa.Table:
        if self._began is None:
            return self._rows([(int(time), 0, 1)])
        self._due = self._auctioneer(self._began).events_before(time)
        until = min(self._due, self._done + MAX_EVENTS)
        counts = [(self._began, self._done, -1), (self._began, until, 1)]
        return self._rows(counts if until > self._done else [])

    def confirm(self, binding: pa.Table) -> None:
        added = binding.filter(pc.greater(binding.column(DIFF), 0))
        if added.num_rows:
            self._began, self._done = added.column(_BEGAN)[0].as_py(), added.column(_COUNT)[0].as_py()

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        rows = {row[DIFF]: row for row in binding.to_pylist()}
        auctioneer, after = self._auctioneer(rows[1][_BEGAN]), rows[1][_COUNT]
        before = rows[-1][_COUNT] if -1 in rows else 0
        staged = {}
        for table in tables:
            made = _stamped(auctioneer, table.table.name, range(before, after), time)
            file = write_staged(table.shard.location, made, schema=arrow_schema(table.shard.columns))
            staged[table.id] = [] if file is None else [file]
        return staged

    def counters(self) -> Mapping[str, int]:
        return {_COUNT: self._done}

    def progress(self) -> Mapping[str, TableReport]:
        behind = max(0, self._due - self._done)
        return {name: TableReport(name, behind=behind, unit="events") for name in TABLES}

    def _auctioneer(self, began: int) -> Auctioneer:
        _, seed, rate = self._pinned
        return Auctioneer(seed, rate, began)

    def _rows(self, counts: list[tuple[int, int, int]]) -> pa.Table:
        schema = self.remap_schema.append(pa.field(DIFF, pa.int64()))
        rows = [(*self._pinned, *count) for count in counts]
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _stamped(auctioneer: Auctioneer, table: str, events: range, time: Time) -> Iterator[pa.RecordBatch]:
    for first in range(events.start, events.stop, BATCH):
        rows = auctioneer.rows(table, first, min(first + BATCH, events.stop))
        for name, value in ((TIME, int(time)), (DIFF, 1)):
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
        yield rows
