"""The contents of tables at one exported snapshot: checked, copied, and compared with what their shards have.

Large tables are not copied together with small ones, which would wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemark_persist import TIME, Shard, StagedFile, read_part, remove_staged, staged_part, write_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import IngestedTable, PostgresTable
from tidemark_replica.storage.errors import SourceNotReady, TableStopped
from tidemark_replica.storage.postgres.connection import Upstream
from tidemark_replica.storage.postgres.contents.snapshot import Snapshot, SnapshotTables
from tidemark_replica.storage.postgres.difference import difference
from tidemark_replica.storage.postgres.relations import Connection, PinnedTable, check_key
from tidemark_replica.storage.postgres.values.updates import CountedErrors
from tidemark_replica.storage.postgres.watch import look
from tidemark_replica.values.arrow_types import arrow_schema

GROUP_BYTES = 512 << 20
"""Tables are copied together if they have no more than this upstream, all together."""
_SIZES = """
select t.place - 1, pg_table_size(c.oid)
from unnest(%s::text[], %s::text[]) with ordinality t(schema, name, place)
join pg_namespace n on n.nspname = t.schema join pg_class c on c.relnamespace = n.oid and c.relname = t.name
"""


@dataclass(frozen=True)
class CopiedTable:
    """A table of the source. `spec` is the one upstream."""

    spec: PostgresTable
    ingested: IngestedTable
    shard: Shard

    def check_key(self, pinned: PinnedTable) -> None:
        """Raises TableStopped: plans rely on a key that the table had when it was declared."""
        table = self.ingested.table
        for key in table.keys:
            check_key([table.columns[place].name for place in key], pinned.key)


def smallest(connection: Connection, tables: Sequence[CopiedTable]) -> list[CopiedTable]:
    """The tables to be copied first: the small ones together, else the smallest one."""
    schemas, names = [t.spec.schema for t in tables], [t.spec.table for t in tables]
    sizes = dict(connection.execute(_SIZES, (schemas, names)).fetchall())
    found: list[CopiedTable] = []
    left = GROUP_BYTES
    for size, place in sorted((sizes.get(place) or 0, place) for place in range(len(tables))):
        left -= size
        if found and left < 0:
            break
        found.append(tables[place])
    return found


def copy_tables(snapshot: Snapshot, tables: Sequence[CopiedTable], time: Time) -> SnapshotTables:
    """Stages the contents at the snapshot, all rows at the time; where a shard has rows, the difference to them. A
    table that cannot be copied stops.

    Raises:
        SourceNotReady: a table changed meanwhile.
        IngestionError: the server fails.
    """
    with snapshot.open([table.spec for table in tables]) as found:
        by_name = {table.spec.name: table for table in tables}
        _check_keys(found, by_name.values())
        copied = [by_name[name] for name in found.pinned]
        staged = found.staged = snapshot.copy(found, [(table.spec, table.ingested) for table in copied], time)
        try:
            for table in copied:
                name = table.spec.name
                if name in found.stopped:
                    remove_staged(table.shard.location, staged.pop(name))
                    found.pinned.pop(name)
                    found.malformed.pop(name, None)
                elif table.shard.state().upper > 0:
                    columns, contents = table.ingested.table.columns, staged[name]
                    updates = _while_it_goes_on(snapshot.upstream, difference(table.shard, columns, contents, time))
                    errors = CountedErrors()
                    file = write_staged(table.shard.location, errors.passed(updates), schema=arrow_schema(columns))
                    staged[name], found.malformed[name] = [] if file is None else [file], errors.count
                    remove_staged(table.shard.location, contents)
            _check_unchanged(snapshot, found, by_name.values())
        except BaseException:
            for name, files in staged.items():
                remove_staged(by_name[name].shard.location, files)
            raise
        return found


def restamped(shard: Shard, files: Sequence[StagedFile], time: Time, alive: Callable[[], None]) -> list[StagedFile]:
    """The updates of the files, all at the time, as one file in place of them. `alive` is called for each batch."""

    def updates() -> Iterator[pa.RecordBatch]:
        for file in files:
            for batch in read_part(staged_part(shard.location, file)):
                alive()
                at = batch.schema.get_field_index(TIME)
                times = pa.repeat(pa.scalar(int(time), pa.int64()), batch.num_rows)
                yield batch.set_column(at, batch.schema.field(at), times)

    file = write_staged(shard.location, updates(), schema=shard.schema)
    remove_staged(shard.location, files)
    return [] if file is None else [file]


def _check_keys(found: SnapshotTables, tables: Iterable[CopiedTable]) -> None:
    for table in tables:
        name = table.spec.name
        try:
            if name in found.pinned:
                table.check_key(found.pinned[name])
        except TableStopped as error:
            found.stopped[name] = error
            found.pinned.pop(name)


def _check_unchanged(snapshot: Snapshot, found: SnapshotTables, tables: Iterable[CopiedTable]) -> None:
    """The copies read the definitions as they were at the time, and not those of the snapshot."""
    with snapshot.upstream.connect() as connection:
        pinned = [(table.spec, found.pinned[table.spec.name]) for table in tables if table.spec.name in found.pinned]
        stopped = look(connection, snapshot.spec, (), pinned, {}).stopped
    for name, error in stopped.items():
        raise SourceNotReady(f"table {name} changed while its contents were copied ({error}); it begins again")


def _while_it_goes_on(upstream: Upstream, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        upstream.check_goes_on()
        yield batch
