"""Delivers a view to its table: one transaction gives the table the view's rows of a time, together with the time.

    connect ─► progress row, locked ─► the shard's updates of (progress, time] ─► COPY into a temporary table
            ─► looked at: keys, and whether the table has what it should lose ─► DELETE, upsert, progress ─► COMMIT

A delivery depends on the shard and on the database alone: any process may make it at any time, twice too. A process
that dies leaves a transaction that the server rolls back.

    the table has never had contents, or the progress row is of another shard   |  all contents are copied into a
    the shard's updates since the progress are compacted, or too many           |  temporary table, piece by piece; then
    somebody changed rows that the view changes, or made the table anew         |  one transaction makes the table equal

Where all contents are copied, a first transaction claims the progress row, and the last one goes on only where the
row is still claimed so: a Dataflow that was deleted and created anew, or a later revision, may have come in between.

Temporary tables are of the session, so no reader finds half of the contents, and nothing has to be cleaned up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ShardReader
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_protocol.types import Column
from tidemark_replica.sinks.destinations.destination import IDLE_MS, DestinationStopped, Reached
from tidemark_replica.sinks.destinations.shard_contents import (
    TooManyChanges,
    check_no_errors,
    contents_shares,
    net_changes,
    share_bits,
)
from tidemark_replica.sinks.postgres.column_types import check_columns
from tidemark_replica.sinks.postgres.progress import (
    PostgresSinkProgress,
    Writer,
    claim,
    create_progress,
    locked_progress,
    record_progress,
)
from tidemark_replica.sinks.postgres.statements import CHANGES, CONTENTS, Statements
from tidemark_replica.sinks.postgres.target_table import Connection, create_table, find_table, is_empty

SHARE_BYTES = 32 << 20
"""The wished size of a piece of all contents, as the shard's files have it."""
KEY_NOT_UNIQUE, KEY_IS_NULL = "KeyNotUnique", "KeyIsNull"


class ContentsDiffer(Exception):
    """The table does not have what the view had at its time, or the difference is not known: all contents are needed.
    The text says why."""


@dataclass(frozen=True)
class Delivery:
    """A view's shard, and the table that keeps its rows."""

    shard: ShardReader
    sink: PostgresSink
    columns: Sequence[Column]
    writer: Writer

    def deliver(self, connection: Connection, time: Time) -> Reached:
        """Gives the table the contents at `time`; changes nothing where it has those of that time or a later one.

        Raises:
            DestinationStopped: the table, or the view, is not as it must be; the message says what to do.
            ViewInError, WrittenByLater, psycopg.Error, PersistError: the table has the contents of one time, before or
                after.
        """
        _ = self._contents_id  # before anything is read: what changes later is found by the next delivery
        check_columns(self.columns, self.sink.key)
        find_table(connection, self.sink, self.columns)
        create_progress(connection, self.sink, self.writer)
        try:
            with connection.transaction():
                return self._update(connection, time)
        except (ContentsDiffer, TooManyChanges) as reason:
            return self._rebuild(connection, time, str(reason))

    @cached_property
    def _contents_id(self) -> str:
        return self.shard.contents_id

    def _update(self, connection: Connection, time: Time) -> Reached:
        """Update the table in a transaction. Raises ContentsDiffer, TooManyChanges."""
        progress, table = self._locked(connection)
        contents = self._contents_id
        if progress.time is None or table is None or progress.relation != table:
            raise ContentsDiffer("the table has had no contents of this sink")
        if progress.shard != contents:
            raise ContentsDiffer(
                "the contents are of another revision, or of before another program changed the view's table"
            )
        if progress.time >= time:
            return Reached(progress.time, progress.time)
        if self.shard.refresh().since > progress.time:
            raise ContentsDiffer(f"the updates since time {progress.time} are compacted")
        with self.shard.lease():
            changes = net_changes(self.shard, self.shard.listen(progress.time + 1, time + 1), self._table)
        if not changes.num_rows and progress.term == self.writer.term and time - progress.time < IDLE_MS:
            return Reached(progress.time, time)
        if changes.num_rows:
            self._apply(connection, changes)
        record_progress(connection, self.sink, progress, self.writer, contents, time, table)
        return Reached(time, time)

    def _apply(self, connection: Connection, changes: pa.Table) -> None:
        """Raises ContentsDiffer, DestinationStopped."""
        statements = Statements(self.sink, self.columns)
        statements.create_temporary(connection, CHANGES, like_target=True, drops=True)
        statements.copy(connection, CHANGES, changes)
        found = statements.find(connection)
        if found.copies:
            raise self._not_unique()
        if found.nulls:
            raise self._is_null()
        if found.rows_differ:  # a key that is new in two rows looks the same: all contents tell
            raise ContentsDiffer("the table lacks a row that the view has lost, or has one under a new key")
        statements.apply_changes(connection)

    def _rebuild(self, connection: Connection, time: Time, reason: str) -> Reached:
        """Makes the table equal to all contents, whatever it has."""
        statements = Statements(self.sink, self.columns)
        with connection.transaction():
            progress, table = self._locked_for_all(connection)
            claim(connection, self.sink, progress, self.writer)
        with self.shard.lease():
            check_no_errors(self.shard, time, self._table)
            parts = self.shard.snapshot_parts(time)
            statements.create_temporary(connection, CONTENTS, like_target=table is not None, drops=False)
            for share in contents_shares(self.shard, parts, share_bits(parts, SHARE_BYTES)):
                self._check_share(share)
                statements.copy(connection, CONTENTS, share)
        try:
            statements.check_contents(connection)
        except psycopg.errors.UniqueViolation:
            raise self._not_unique() from None
        with connection.transaction():
            progress, table = self._locked_for_all(connection)
            progress.check_claimed(self.sink, self.writer)
            if table is None:
                table = create_table(connection, self.sink, self.columns)
            elif (reached := progress.time_of(self._contents_id, table)) is not None and reached > time:
                return Reached(reached, reached)  # another replica was faster
            statements.apply_contents(connection)
            record_progress(connection, self.sink, progress, self.writer, self._contents_id, time, table)
        return Reached(time, time, anew_because=reason)

    def _locked(self, connection: Connection) -> tuple[PostgresSinkProgress, int | None]:
        """The progress row, locked and checked, and the oid of the table."""
        progress = locked_progress(connection, self.sink)
        progress.check(self.sink, self.writer)
        return progress, find_table(connection, self.sink, self.columns)

    def _locked_for_all(self, connection: Connection) -> tuple[PostgresSinkProgress, int | None]:
        """The same, for a table all of whose rows may be replaced. Raises DestinationStopped (TableNotEmpty)."""
        progress, table = self._locked(connection)
        if table is not None and progress.relation != table and not is_empty(connection, self.sink):
            raise DestinationStopped(
                "TableNotEmpty", f"{self._table} has rows that no sink wrote: empty it, or name another table"
            )
        return progress, table

    def _check_share(self, rows: pa.Table) -> None:
        if pc.any(pc.greater(rows.column(DIFF), 1)).as_py():
            raise self._not_unique()
        if any(rows.column(name).null_count for name in self.sink.key):
            raise self._is_null()

    def _not_unique(self) -> DestinationStopped:
        key = ", ".join(self.sink.key)
        return DestinationStopped(
            KEY_NOT_UNIQUE,
            f"the view has two rows with one key ({key}): {self._table} keeps the rows that it has. Name a key of the"
            " view, or correct the SQL",
        )

    def _is_null(self) -> DestinationStopped:
        key = ", ".join(self.sink.key)
        return DestinationStopped(
            KEY_IS_NULL, f"the view has a row with NULL in its key ({key}): {self._table} keeps the rows that it has"
        )

    @property
    def _table(self) -> str:
        return f"table {self.sink.schema}.{self.sink.table}"
