"""TPC-H as a source: a binding is a range of transactions.

    remap row  (generator, scale_factor, seed, transactions)     one live row; it counts the transactions so far

The first binding has the initial data (0 transactions). The row also names the generator, so that the data stay
definite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, TIME, StagedFile, write_staged
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.ingestion import IngestedTable, TpchSource
from tidemark_replica.storage.errors import NotDefinite
from tidemark_replica.storage.source import Source, SourceShards
from tidemark_replica.storage.tpch.initial import InitialData, check_scale_factor, generator_version
from tidemark_replica.storage.tpch.tables import CHANGING
from tidemark_replica.storage.tpch.transactions import TransactionChanges, changes
from tidemark_replica.values.arrow_types import arrow_schema

CATCH_UP_MS = 10_000
"""A tick after a pause catches up at most this much of the missed time."""
_COUNT = "transactions"


class TpchIngestion(Source):
    """The `Source` of a `loadGenerator: {tpch: ...}`."""

    remap_schema = pa.schema(
        [
            pa.field("generator", pa.string()),
            pa.field("scale_factor", pa.string()),
            pa.field("seed", pa.int64()),
            pa.field(_COUNT, pa.int64()),
        ]
    )

    def __init__(self, spec: TpchSource, cache: Path) -> None:
        self._spec = spec
        self._data = InitialData(cache, spec.scale_factor)
        self._pinned = (generator_version(), check_scale_factor(spec.scale_factor), spec.seed)
        self._done: int | None = None
        self._last = Time(0)

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self._last = Time(max(0, upper - 1))
        if bound.num_rows == 0:
            self._done = None
            return
        row = bound.slice(bound.num_rows - 1).to_pylist()[0]
        pinned = (row["generator"], row["scale_factor"], row["seed"])
        if pinned != self._pinned:
            raise NotDefinite(
                f"the data so far come from {pinned}, not {self._pinned}: install that version and restore the"
                " DataSource's options, or make a new DataSource"
            )
        self._done = row[_COUNT]

    def discover(self, time: Time) -> pa.Table:
        if self._done is None:
            return self._rows([(0, 1)])
        due = self._transactions_due(time)
        return self._rows([(self._done, -1), (self._done + due, 1)] if due else [])

    def confirm(self, binding: pa.Table) -> None:
        added = binding.filter(pc.greater(binding.column(DIFF), 0))
        if added.num_rows:
            self._done = added.column(_COUNT)[0].as_py()

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        counts = {row[DIFF]: row[_COUNT] for row in binding.to_pylist()}
        made = None  # the initial data
        if -1 in counts:
            made = changes(self._data.population, self._spec.seed, counts[-1], counts[1])
        staged = {}
        for table in tables:
            rows = self._initial(table, time) if made is None else self._changed(table, made, time)
            schema = arrow_schema(table.shard.columns)
            file = write_staged(table.shard.location, rows, schema=schema)
            staged[table.id] = [] if file is None else [file]
        return staged

    def is_static(self, table: IngestedTable) -> bool:
        return table.table.name not in CHANGING

    def counters(self) -> Mapping[str, int]:
        return {_COUNT: self._done or 0}

    def _transactions_due(self, time: Time) -> int:
        """The number of transactions since the last tick: whole numbers that add up over all ticks."""
        since = max(self._last, time - CATCH_UP_MS)
        rate = self._spec.transactions_per_second
        self._last = time
        return time * rate // 1000 - since * rate // 1000

    def _rows(self, counts: list[tuple[int, int]]) -> pa.Table:
        generator, scale_factor, seed = self._pinned
        rows = [(generator, scale_factor, seed, count, diff) for count, diff in counts]
        schema = self.remap_schema.append(pa.field(DIFF, pa.int64()))
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)

    def _initial(self, table: IngestedTable, time: Time) -> Iterator[pa.RecordBatch]:
        for batch in self._data.rows(table.table.name):
            yield _stamp(batch.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)), time)

    def _changed(self, table: IngestedTable, made: TransactionChanges, time: Time) -> Iterator[pa.RecordBatch]:
        name = table.table.name
        if name not in CHANGING:
            return
        added = made.orders if name == "orders" else made.lineitem
        old = self._data.orders_at(made.initial_deleted)[0 if name == "orders" else 1]
        gone = old.append_column(DIFF, pa.repeat(pa.scalar(-1, pa.int64()), old.num_rows))
        for batch in pa.concat_tables([added, gone]).to_batches():
            yield _stamp(batch, time)


def _stamp(batch: pa.RecordBatch, time: Time) -> pa.RecordBatch:
    return batch.append_column(TIME, pa.repeat(pa.scalar(int(time), pa.int64()), batch.num_rows))
