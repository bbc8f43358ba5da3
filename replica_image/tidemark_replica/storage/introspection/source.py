"""Relations of the operator as a source: a tick makes the tables what the document that waits says.

    table ── contents at its upper ──┐
    document ── rows ────────────────┴──► difference ──► staged file ──► binding: the files of all tables

A tick without a document does not take place: the tables stand still, so that nobody takes what was so for what is.
Where a table's difference is empty, its upper advances alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, TIME, Shard, StagedFile, consolidate, write_staged
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.ingestion import IngestedTable, IntrospectionSource, SourceTable
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.introspection.contents import ContentsSlot
from tidemark_replica.storage.source import Source, SourceShards
from tidemark_replica.storage.staged_bindings import REMAP_SCHEMA, StagedBindings, staged_files


class IntrospectionIngestion(Source):
    """The `Source` of an `introspection:` DataSource."""

    remap_schema = REMAP_SCHEMA

    def __init__(self, slot: ContentsSlot) -> None:
        self._slot, self._bindings = slot, StagedBindings()
        self._shards: dict[str, Shard] = {}
        self._held: dict[str, pa.Table] = {}
        self._next: dict[str, pa.Table] = {}
        self._counts = {"documents": 0, "changes": 0}
        self._changes = 0

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self._bindings.resume(bound)
        self._shards = {table.table.name: shard for table, shard in shards.tables}
        self._held, self._next = {}, {}
        self._slot.resume(upper)

    def reason_to_wait(self) -> str | None:
        return self._slot.reason_to_wait()

    def discover(self, time: Time) -> pa.Table:
        contents = self._slot.take(time)
        if contents is None:
            raise SourceUnusable("no document of the operator waits for this tick")
        self._next, self._changes = {}, 0
        staged = dict[str, list[StagedFile]]()
        for name, rows in contents.tables.items():
            shard = self._shards[name]
            new, old = _with_diffs(rows), self._contents(name, shard)
            changes = consolidate(pa.concat_tables([new, _negated(old)]))
            self._next[name], self._changes = consolidate(new), self._changes + changes.num_rows
            if file := write_staged(shard.location, _timed(changes, time), schema=shard.schema):
                staged[name] = [file]
        return self._bindings.binding({}, staged)

    def confirm(self, binding: pa.Table) -> None:
        self._bindings.confirm(binding)
        self._held |= self._next
        self._counts["documents"] += 1
        self._counts["changes"] += self._changes

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        return staged_files(binding, tables)

    def counters(self) -> Mapping[str, int]:
        return self._counts

    def _contents(self, name: str, shard: Shard) -> pa.Table:
        """The rows of the table: read once, then known."""
        if name not in self._held:
            upper = shard.refresh().upper
            empty = _with_diffs(shard.schema.empty_table())
            self._held[name] = shard.snapshot(upper - 1).select(empty.column_names) if upper else empty
        return self._held[name]


def tables_of(spec: IntrospectionSource) -> tuple[SourceTable, ...]:
    return tuple(SourceTable(table.name, table.columns) for table in spec.tables)


def _with_diffs(rows: pa.Table) -> pa.Table:
    """The rows, each once, with the columns `__error` and `__diff`."""
    rows = rows.append_column(ERROR, pa.nulls(rows.num_rows, pa.string()))
    return rows.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))


def _negated(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(DIFF), DIFF, pc.negate(rows.column(DIFF)))


def _timed(updates: pa.Table, time: Time) -> pa.Table:
    return updates.append_column(TIME, pa.repeat(pa.scalar(int(time), pa.int64()), updates.num_rows))
