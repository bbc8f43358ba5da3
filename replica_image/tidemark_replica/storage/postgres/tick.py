"""Reads the transactions of one tick, up to a commit, and hands their changes to the tables.

A tick ends at the newest commit that came, or after the one that made it longer than TICK_BYTES. A transaction is never
divided: once it began, its commit is waited for, as the server sends nothing of transactions that are not committed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

from tidemark_persist import StagedFile
from tidemark_protocol.plan.ingestion import PostgresSource
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.postgres.changes import FLUSH_BYTES, TableChanges
from tidemark_replica.storage.postgres.connection import Replication
from tidemark_replica.storage.postgres.pgoutput import (
    BEGIN,
    BODY,
    CHANGES,
    COMMIT,
    RELATION,
    TRUNCATE,
    ReplicatedRelation,
    commit_end,
    commit_lsn,
    parse_relation,
    relation_oid,
    transaction_id,
    truncated,
)
from tidemark_replica.storage.postgres.stop import TABLE_MISSING, TRANSACTION_TOO_LARGE

TICK_BYTES = 64 << 20


class Tick:
    """`relations`: what the stream described so far, by oid; it describes a table once, and again after its definition
    may have changed. `stopped`: tables that stopped in this tick, and take nothing of it. `described`: by table, the
    names of its columns in each description of this tick. `truncated`: tables, and the transactions that emptied
    them by TRUNCATE. `has_changes`: whether any table has a change. `transactions`: those that changed or described a
    table. `malformed`: once it is finished, how many error rows each table gets."""

    def __init__(self, spec: PostgresSource, relations: dict[int, ReplicatedRelation], lsn: int) -> None:
        self.stopped: dict[str, TableStopped] = {}
        self.described: dict[str, list[tuple[str, ...]]] = {}
        self.truncated: set[tuple[str, int]] = set()
        self.transactions = array("L")
        self.has_changes = False
        self.malformed: dict[str, int] = {}
        self._names = {table.name: (table.schema, table.table) for table in spec.tables}
        self._spec, self._relations, self._lsn = spec, relations, lsn
        self._tables: dict[int, tuple[TableChanges, ...]] = {}
        """The changes of tables, by the oid upstream: several tables may follow one, each with columns of its own."""
        self._touched: set[int] = set()
        self._undescribed: set[str] = set()
        """Tables without a change so far: a description from before may be of an earlier definition."""
        self._commit = self._transaction = self._waiting = self._in_transaction = self._read = 0
        self._open = False

    def add(self, table: TableChanges) -> None:
        """A table whose changes are wanted."""
        self._tables[table.oid] = (*self._tables.get(table.oid, ()), table)
        self._undescribed.add(table.name)

    @property
    def has_tables(self) -> bool:
        """Whether any table has not stopped."""
        return bool(self._tables)

    def absorb(self, earlier: Tick) -> None:
        """Takes over what `earlier` read of its tables, which are in this tick from now on: a look at the catalogue
        needs it."""
        for name, descriptions in earlier.described.items():
            self.described.setdefault(name, []).extend(descriptions)
        self.truncated |= earlier.truncated
        self.transactions.extend(earlier.transactions)
        self.has_changes |= earlier.has_changes

    def read(self, stream: Replication, until: int = 0) -> int:
        """Reads the transactions that came, at least all before the position `until`. Returns the position after the
        last commit."""
        self._read = 0
        while (data := stream.read(self._open, until)) is not None:
            kind = data[BODY]
            if kind in CHANGES:
                self._change(data)
            elif kind == BEGIN:
                self._commit, self._transaction = commit_lsn(data), transaction_id(data)
                self._open, self._in_transaction = True, 0
                self._touched.clear()
            elif kind == COMMIT:
                self._open = False
                if self._in_transaction:
                    self.transactions.append(self._transaction)
                self._lsn = max(self._lsn, commit_end(data))
                if self._read > TICK_BYTES and self._lsn >= until:
                    break
            elif kind == RELATION:
                self._describe(parse_relation(data))
            elif kind == TRUNCATE:
                self._truncate(truncated(data))
        return max(self._lsn, until)

    def flush(self) -> None:
        """Stages the waiting changes of all tables."""
        for table in self._all():
            self._attempt(table, table.flush)
        self._waiting = 0

    def discard(self) -> None:
        """Deletes the staged files of all tables. Nothing is bound of this tick."""
        for table in self._all():
            table.discard()

    def finish(self) -> dict[str, list[StagedFile]]:
        """Stages the rest, and returns the staged files by the table's name."""
        staged: dict[str, list[StagedFile]] = {}
        for table in self._all():
            self._attempt(table, lambda table=table: staged.update({table.name: table.finish()}))  # type: ignore[misc]
        self.malformed = {table.name: table.malformed for table in self._all()}
        return staged

    def _all(self) -> list[TableChanges]:
        return [table for tables in self._tables.values() for table in tables]

    def _following(self, oid: int) -> Iterator[TableChanges]:
        """The tables that take this transaction's changes of the table upstream."""
        for table in self._tables.get(oid, ()):
            if self._commit >= table.begin_at:
                yield table

    def _change(self, data: bytes) -> None:
        oid, size, is_taken = relation_oid(data), len(data), False
        for table in self._following(oid):
            if table.name in self._undescribed:
                self._undescribed.discard(table.name)
                self._redefine(table, self._relations[oid])
                if table.name in self.stopped:
                    continue
            table.waiting.append(data)
            self._waiting += size
            is_taken = True
        if not is_taken:
            return
        self.has_changes = True
        self._read += size
        self._in_transaction += size
        self._touched.add(oid)
        if self._in_transaction > self._spec.max_transaction_bytes:
            self._too_large()
        elif self._waiting > FLUSH_BYTES:
            self.flush()

    def _describe(self, relation: ReplicatedRelation) -> None:
        self._relations[relation.oid] = relation
        columns = tuple(column.name for column in relation.columns)
        for table in self._following(relation.oid):
            self._undescribed.discard(table.name)
            self.transactions.append(self._transaction)
            descriptions = self.described.setdefault(table.name, [])
            if columns not in descriptions:
                descriptions.append(columns)
            self._redefine(table, relation)

    def _redefine(self, table: TableChanges, relation: ReplicatedRelation) -> None:
        def describe() -> None:
            if (relation.schema, relation.table) != self._names[table.name]:
                raise TableStopped(TABLE_MISSING, f"the table is {relation.schema}.{relation.table} now")
            table.describe(relation)

        self._attempt(table, describe)

    def _truncate(self, oids: tuple[int, ...]) -> None:
        for oid in oids:
            for table in self._following(oid):
                table.truncate()
                self.truncated.add((table.name, self._transaction))
                self.transactions.append(self._transaction)
                self.has_changes = True

    def _too_large(self) -> None:
        """Stops each table that the transaction changes: none of it may show a part."""
        for table in [table for oid in self._touched for table in self._following(oid)]:
            self._stop(
                table,
                TableStopped(
                    TRANSACTION_TOO_LARGE,
                    f"a transaction has more than maxTransactionBytes ({self._spec.max_transaction_bytes}); raise it",
                ),
            )

    def _attempt(self, table: TableChanges, work: Callable[[], None]) -> None:
        try:
            work()
        except TableStopped as error:
            self._stop(table, error)

    def _stop(self, table: TableChanges, error: TableStopped) -> None:
        left = tuple(each for each in self._tables.pop(table.oid) if each is not table)
        if left:
            self._tables[table.oid] = left
        self._waiting -= min(self._waiting, sum(map(len, table.waiting)))
        table.discard()
        self.stopped[table.name] = error
