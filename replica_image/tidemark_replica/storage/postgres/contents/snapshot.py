"""Copies the contents of tables at one exported snapshot into staged files.

    holder      begin, take over the snapshot, lock the tables (no ALTER TABLE meanwhile), keep the transaction open
    each range  COPY (... ctid in [a, b)) TO STDOUT ──► blocks of rows (copied_rows) ──► one staged file

Several ranges are copied at a time, each by a connection of its own. Memory is that of some blocks for each.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from psycopg import sql

from tidemark_persist import StagedFile, remove_staged, write_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import IngestedTable, PostgresSource, PostgresTable
from tidemark_replica.storage.errors import SourceNotReady, TableStopped
from tidemark_replica.storage.postgres.connection import Upstream
from tidemark_replica.storage.postgres.contents.copied_rows import copied_blocks, parsed
from tidemark_replica.storage.postgres.relations import Connection, PinnedTable, UpstreamTable, find_table
from tidemark_replica.storage.postgres.values.updates import CountedErrors, updates
from tidemark_replica.values.arrow_types import arrow_schema

COPIES = 4
"""Ranges that are copied at a time."""
RANGE_PAGES_MIN, RANGE_PAGES = 4_096, 16_384
RANGES_MAX = 512
"""A range has 128 MiB, or less (32 MiB at least) where a table has too few of them to divide the work well. A table has
at most RANGES_MAX, which have more then."""
_TID_RANGES_SINCE = 140_000
_PAGES = "select pg_relation_size(%s::oid) / current_setting('block_size')::bigint"
"""The number of a table's pages. It waits for the table's lock."""


@dataclass(frozen=True)
class _Range:
    """Pages [first, end) of a table; `end` None: all further ones. `key`: as of the pinned table."""

    table: PostgresTable
    ingested: IngestedTable
    key: tuple[str, ...]
    first: int
    end: int | None


@dataclass
class SnapshotTables:
    """The tables of a snapshot. `pinned`: the copied ones. `stopped`: why others are not copied. `pages`: the sizes.
    `malformed`: how many error rows the copies have. `staged`: the files of the copied ones."""

    pinned: dict[str, PinnedTable]
    stopped: dict[str, TableStopped]
    pages: dict[str, int]
    server_version: int
    malformed: Counter[str] = field(default_factory=Counter)
    staged: dict[str, list[StagedFile]] = field(default_factory=dict)


class Snapshot:
    """`progress`: is called with the name of a table and how much of it was copied, in percent."""

    def __init__(
        self, upstream: Upstream, spec: PostgresSource, exported: str, progress: Callable[[str, int], None]
    ) -> None:
        self.upstream, self.spec, self._exported, self._progress = upstream, spec, exported, progress
        self._cancelled = threading.Event()
        self._written: list[tuple[str, StagedFile]] = []
        """The location of a shard, and a file beside it."""

    @contextmanager
    def open(self, tables: Sequence[PostgresTable]) -> Iterator[SnapshotTables]:
        """Holds the snapshot and locks the tables. Raises IngestionError."""
        with self._transaction() as connection:
            found = SnapshotTables({}, {}, {}, connection.info.server_version)
            for table in tables:
                try:
                    with self.upstream.patience(connection.pgconn):
                        definition, pages = self._locked(connection, table)
                    found.pinned[table.name] = definition.pinned(table.columns or ())
                    found.pages[table.name] = pages
                except TableStopped as error:
                    found.stopped[table.name] = error
            yield found

    def copy(
        self, found: SnapshotTables, tables: Sequence[tuple[PostgresTable, IngestedTable]], time: Time
    ) -> dict[str, list[StagedFile]]:
        """Stages the rows of the tables at the time; one with a row that is too long is added to `found.stopped`.
        Raises IngestionError; then no staged file is left."""
        ranges = [each for table, ingested in tables for each in _ranges(table, ingested, found)]
        staged: dict[str, list[StagedFile]] = {table.name: [] for table, _ in tables}
        done, all_of = Counter[str](), Counter(each.table.name for each in ranges)
        try:
            with ThreadPoolExecutor(COPIES, "postgres-copy") as pool:
                copies = pool.map(lambda r: self._copy(r, found, time), ranges)
                for each, (file, malformed) in zip(ranges, copies, strict=True):
                    name = each.table.name
                    staged[name] += [] if file is None else [file]
                    found.malformed[name] += malformed
                    done[name] += 1
                    self._progress(name, 100 * done[name] // all_of[name])
        except BaseException:
            for location, file in self._written:
                remove_staged(location, [file])
            raise
        return staged

    def _copy(self, of: _Range, found: SnapshotTables, time: Time) -> tuple[StagedFile | None, int]:
        """The file of one range, and how many error rows it has; none of a table that stopped. After a failure of
        another range, nothing is done any more."""
        if self._cancelled.is_set():
            raise SourceNotReady("the snapshot was given up")
        errors = CountedErrors()
        if of.table.name in found.stopped:
            return None, 0
        try:
            with self._transaction() as connection:
                schema = arrow_schema(of.table.columns or ())
                blocks = copied_blocks(self.upstream, connection, _query(of, schema.names))
                batches = (updates(parsed(block, schema, of.key), schema, 1, time, of.key) for block in blocks)
                file = write_staged(of.ingested.shard.location, errors.passed(batches), schema=schema)
        except TableStopped as error:
            found.stopped[of.table.name] = error
            return None, 0
        except BaseException:
            self._cancelled.set()
            raise
        if file is not None:
            self._written.append((of.ingested.shard.location, file))
        return file, errors.count

    def _locked(self, connection: Connection, table: PostgresTable) -> tuple[UpstreamTable, int]:
        """The table, and the number of its pages."""
        find_table(connection, self.spec, table)  # a table that may not be read would end the transaction
        name = sql.Identifier(table.schema, table.table)
        connection.execute(sql.SQL("lock table only {} in access share mode").format(name))
        definition = find_table(connection, self.spec, table)
        if definition.is_rewritten:
            raise SourceNotReady(
                f"table {table.schema}.{table.table} was rewritten (ALTER TABLE, TRUNCATE) while its snapshot began;"
                " it begins again"
            )
        (pages,) = connection.execute(_PAGES, (definition.oid,)).fetchone() or (0,)
        return definition, pages

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self.upstream.connect_for_long() as connection:
            with self.upstream.patience(connection.pgconn):
                connection.execute("begin isolation level repeatable read, read only")
                connection.execute(sql.SQL("set transaction snapshot {}").format(self._exported))
            yield connection


def _query(of: _Range, names: Sequence[str]) -> sql.Composed:
    pages = []
    if of.first:
        pages.append(sql.SQL("ctid >= {}").format(f"({of.first},0)"))
    if of.end is not None:
        pages.append(sql.SQL("ctid < {}").format(f"({of.end},0)"))
    return sql.SQL("copy (select {} from only {}{}) to stdout (format csv)").format(
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.Identifier(of.table.schema, of.table.table),
        sql.SQL(" where ") + sql.SQL(" and ").join(pages) if pages else sql.SQL(""),
    )


def _ranges(table: PostgresTable, ingested: IngestedTable, found: SnapshotTables) -> list[_Range]:
    pages, key = found.pages[table.name], found.pinned[table.name].key
    even = max(RANGE_PAGES_MIN, -(-pages // (2 * COPIES)))
    size = max(min(even, RANGE_PAGES), -(-pages // RANGES_MAX))
    if found.server_version < _TID_RANGES_SINCE:
        size = max(size, pages + 1)
    firsts = list(range(0, max(pages, 1), size))
    ends = [*firsts[1:], None]
    return [_Range(table, ingested, key, first, end) for first, end in zip(firsts, ends, strict=True)]
