"""Tables to which columns were added: a later one begins with the rows of the one before it, NULL in the new columns.

    orders     id, name         calls, without vip ─────────────────────────►   as long as the operator keeps it
    orders.2   id, name, vip                ▲ T: the rows of orders ── calls ──►  the name `orders` means it

The tick in which a table begins writes nothing else to the source. Its rows are staged before the binding that names
them, which also has the entry (table, begun/<shard>). So a crash leaves a table that has not begun, and stands still,
or one whose first rows are bound. An earlier table is at each time the later one without its new columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from tidemark_persist import (
    DIFF,
    ERROR,
    TIME,
    PartScan,
    Shard,
    StagedFile,
    consolidate,
    read_part,
    staged_part,
    write_staged,
)
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import IngestedTable, WrittenSource, WrittenTable
from tidemark_protocol.plan.successors import newest, number, spec_name
from tidemark_replica.storage.staged_bindings import Entry
from tidemark_replica.storage.update_rows import error_rows, stamped

Place = tuple[IngestedTable, Shard]
ROWS_GONE = "RowsGone"


def written_now(spec: WrittenSource) -> dict[str, WrittenTable]:
    """The tables that calls write, by their names in the spec, which they have here."""
    stored = {table.name: table for table in spec.tables}
    return {name: replace(stored[last], name=name) for name, last in newest(stored).items()}


class Generations:
    """The tables of each name of the spec, the first one first. `positions`: of the remap shard, as they are now."""

    def __init__(self, tables: Iterable[Place], positions: Mapping[Entry, str]) -> None:
        self._positions = positions
        self._places: dict[str, list[Place]] = {}
        for place in sorted(tables, key=lambda each: number(each[0].table.name)):
            self._places.setdefault(spec_name(place[0].table.name), []).append(place)

    def last(self, name: str) -> Place:
        """The table that calls write."""
        return self._places[name][-1]

    def earlier(self, name: str) -> list[Place]:
        """The tables before it, which calls write, too."""
        return self._places[name][:-1]

    def begun_at(self, table: IngestedTable) -> Time | None:
        """The time when a later table began, or when its first rows are bound; None: it has not begun. A first table:
        0."""
        if number(table.table.name) == 1:
            return Time(0)
        found = self._positions.get(begin_entry(table))
        return None if found is None else Time(int(found))

    def not_begun(self) -> list[str]:
        """The names of tables whose first rows are not bound yet."""
        every = (table for places in self._places.values() for table, _ in places)
        return [table.table.name for table in every if self.begun_at(table) is None]

    def to_begin(self) -> list[tuple[Place, Shard]]:
        """The tables that have not begun, each with the shard of the last one before it that has, if there is one."""
        found = []
        for places in self._places.values():
            base: Shard | None = None
            for table, shard in places:
                if self.begun_at(table) is not None:
                    base = shard
                elif base is not None:
                    found.append(((table, shard), base))
        return found

    def stop_reasons(self) -> dict[str, str]:
        """The reason why tables cannot begin, by their names: there is no table before them that has."""
        can_begin = {table.table.name for (table, _), _ in self.to_begin()}
        return {
            name: f"{ROWS_GONE}: table {name} begins with the rows of a table that is gone: remove it, and write the "
            "rows to a table of another name"
            for name in self.not_begun()
            if name not in can_begin
        }


def begin_entry(table: IngestedTable) -> Entry:
    """The row's place in the remap shard. A later DataSource that adopts the bindings has other shards."""
    return table.table.name, f"begun/{table.shard.shard_id}"


def first_rows(base: Shard, shard: Shard, time: Time, alive: Callable[[], None]) -> StagedFile | None:
    """Stages the contents of `base`, for the shard, with NULL in columns that `base` lacks; None where it is empty.
    `alive` is called for each batch. Memory is that of the retractions, or of a share on disk."""
    return write_staged(shard.location, _widened(base, shard.schema, time, alive), schema=shard.schema)


def without_added(last: Shard, file: StagedFile, earlier: Shard) -> StagedFile | None:
    """Stages the updates of a file of the last table for an earlier one; None where they cancel out."""
    names = [*earlier.schema.names, TIME, DIFF]
    read = read_part(staged_part(last.location, file), columns=names)
    batches = (batch for each in read for batch in consolidate(pa.Table.from_batches([each])).to_batches())
    return write_staged(earlier.location, batches, schema=earlier.schema)


def _widened(base: Shard, schema: pa.Schema, time: Time, alive: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    upper = base.refresh().upper
    if upper == 0:
        return
    wanted = schema.append(pa.field(DIFF, pa.int64()))

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        known = set(batch.schema.names)
        columns = [batch.column(f.name) if f.name in known else pa.nulls(batch.num_rows, f.type) for f in wanted]
        return pa.RecordBatch.from_arrays(columns, schema=wanted)

    with base.contents(upper - 1, PartScan(tuple(base.schema.names), wanted, convert)) as contents:
        for batch in contents.errors.to_batches():
            yield error_rows(schema, time, batch.column(ERROR), batch.column(DIFF))
        for piece in contents.rows:
            alive()
            for batch in piece.to_batches():
                yield stamped(batch.select(schema.names), time, diffs=batch.column(DIFF))
