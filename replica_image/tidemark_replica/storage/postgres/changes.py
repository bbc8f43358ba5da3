"""The changes of one tick, table by table, as they are staged.

messages ──add──► waiting, at most FLUSH_BYTES of all tables ──flush──► decoded, one staged file for each table, or
                                                                        several where small changes are of large rows
TRUNCATE ──────► the files of this tick are taken back, and the rows that the shard has are withdrawn
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import pyarrow as pa

from tidemark_persist import Shard, StagedFile, consolidate, remove_staged, restaged, write_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import IngestedTable
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.postgres.difference import difference
from tidemark_replica.storage.postgres.keyed.changes import keyed_updates
from tidemark_replica.storage.postgres.keyed.rows import KeyedRows
from tidemark_replica.storage.postgres.pgoutput import ReplicatedRelation
from tidemark_replica.storage.postgres.relations import PinnedTable
from tidemark_replica.storage.postgres.stop import REPLICA_IDENTITY
from tidemark_replica.storage.postgres.values.tuples import RowNotFound, decode, decode_keyed
from tidemark_replica.storage.postgres.values.updates import new_errors, updates
from tidemark_replica.values.arrow_types import arrow_schema

FLUSH_BYTES = 32 << 20
FOUND_BYTES = 32 << 20
"""A batch of changes whose rows before have more bytes, by the average row of the table, is divided."""

RENEW_SECONDS = 3 * 3600.0
"""Staged files that are older are copied before the others wait for the table: half the age at which `stage` does."""


class _TooMany(Exception):
    """A batch of changes is to be divided into so many."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches


class TableChanges:
    """One table's changes of a tick. `rows`: by key; of no use where changes have whole rows.

    `files`: the staged files, at first those of a table that begins, if it does; `rows` has them, or is empty.
    `begin_at`: transactions that were committed before this position are in these files. `malformed`: how many error
    rows the files add.
    """

    def __init__(
        self,
        ingested: IngestedTable,
        shard: Shard,
        pinned: PinnedTable,
        rows: KeyedRows,
        time: Time,
        snapshot: Sequence[StagedFile] = (),
        begin_at: int = 0,
        malformed: int = 0,
    ) -> None:
        self.files, self.begin_at, self.malformed = list(snapshot), begin_at, malformed
        self.waiting: list[bytes] = []
        self._shard, self._pinned, self._rows, self._time = shard, pinned, rows, time
        self.name, self.oid = ingested.table.name, pinned.oid
        self._location = ingested.shard.location
        self._columns = ingested.table.columns
        self._schema = arrow_schema(ingested.table.columns)
        self._key = [self._schema.get_field_index(name) for name in pinned.key]
        self._withdrawn = False
        self._columns_upstream, self._column_indexes = 0, tuple[int, ...]()

    def describe(self, relation: ReplicatedRelation) -> None:
        """The changes that follow have these columns. Raises TableStopped."""
        self.flush()
        self._column_indexes = self._pinned.column_indexes(relation)
        self._columns_upstream = len(relation.columns)

    def truncate(self) -> None:
        """All rows disappear."""
        self.discard()
        self._rows.close()
        self._withdrawn = True

    def discard(self) -> None:
        """Drops the waiting messages, and deletes the staged files."""
        self.waiting.clear()
        remove_staged(self._location, self.files)
        self.files.clear()
        self.malformed = 0

    def renew(self, alive: Callable[[], None]) -> None:
        """Copies the staged files that took hours so far, so that they are young when they are bound."""
        for place, old in enumerate(self.files):
            self.files[place] = restaged(self._location, old, age_seconds=RENEW_SECONDS, alive=alive)
            if self.files[place] is not old:
                remove_staged(self._location, [old])

    def flush(self) -> None:
        """Stages the waiting messages. Raises TableStopped."""
        if not self.waiting:
            return
        messages, self.waiting = self.waiting, []
        try:
            self._take(messages)
        except RowNotFound as error:
            raise TableStopped(REPLICA_IDENTITY, str(error)) from None

    def _take(self, messages: list[bytes]) -> None:
        try:
            updates = self._by_key(messages) if self._key else self._by_rows(messages)
        except _TooMany as too_many:
            size = -(-len(messages) // too_many.batches)
            for first in range(0, len(messages), size):
                self._take(messages[first : first + size])
            return
        self._stage(updates.to_batches())
        self.malformed += new_errors(updates)
        self._rows.add(updates)

    def finish(self) -> list[StagedFile]:
        """Stages the rest, and returns all files of the tick. Raises TableStopped."""
        self.flush()
        if self._withdrawn:
            self._stage(difference(self._shard, self._columns, (), self._time))
        return self.files

    def _by_rows(self, messages: list[bytes]) -> pa.Table:
        batches = [
            updates([tuples.texts(place) for place in self._column_indexes], self._schema, diff, self._time)
            for tuples, diff in decode(messages, self._columns_upstream)
        ]
        return consolidate(pa.Table.from_batches(batches))

    def _by_key(self, messages: list[bytes]) -> pa.Table:
        changes = decode_keyed(messages, self._columns_upstream, [self._column_indexes[index] for index in self._key])
        rows = partial(self._open_rows, len(messages))
        return keyed_updates(changes, self._column_indexes, self._key, self._schema, self._time, rows)

    def _open_rows(self, messages: int, sought: int) -> KeyedRows:
        """The rows before the changes. Raises _TooMany: they would need too much memory."""
        rows = self._rows.opened(self.files, self._withdrawn)
        batches = min(messages, math.ceil(sought * rows.row_bytes / FOUND_BYTES))
        if batches > 1:
            raise _TooMany(batches)
        return rows

    def _stage(self, batches: Iterable[pa.RecordBatch]) -> None:
        file = write_staged(self._location, batches, schema=self._schema)
        if file is not None:
            self.files.append(file)
