"""The progress row of a sink's table: the time of its contents, and who may write it. It is written in the transaction
that writes the table.

    tidemark_sinks      one row for each table of the schema that a sink writes
    owner               the view, as namespace.dataflow.export: no other view writes the table
    uid, retired        the Dataflow, and those of the same name that it took the table over from: these are refused
    term                the writer term of the revision: a lower one is refused
    shard, time         whose contents the table has, and of which time; NULL before the first
    relation            the table's oid: another table of the same name is not the sink's
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from tidemark_persist import PersistError
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.sinks.postgres import PROGRESS_TABLE, PostgresSink
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.postgres.target_table import Connection

TABLE_TAKEN_OVER = "TableTakenOver"
RETIRED_MAX = 32
"""Earlier Dataflows of the same name that are remembered."""
_CREATE = """
create table if not exists {} (
    table_name text primary key, owner text not null, uid text not null, retired text[] not null default '{{}}',
    term bigint not null, shard text, time bigint, relation bigint, written_at timestamptz not null default now()
)
"""
_INSERT = "insert into {} (table_name, owner, uid, term) values (%s, %s, %s, %s) on conflict do nothing"
_SELECT = "select owner, uid, retired, term, shard, time, relation from {} where table_name = %s"
_CLAIM = "update {} set owner = %s, uid = %s, retired = %s, term = %s where table_name = %s"
_UPDATE = """
update {} set owner = %s, uid = %s, retired = %s, term = %s, shard = %s, time = %s, relation = %s,
    written_at = clock_timestamp()
where table_name = %s
"""


_FASTER = (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable, psycopg.errors.DuplicateObject)
"""Errors of `create table if not exists` where another replica creates the table at the same moment."""


class WrittenByLater(PersistError):
    """A later revision, or another Dataflow, writes the table."""


@dataclass(frozen=True)
class Writer:
    """The Dataflow's uid, and the writer term of its revision."""

    uid: str
    term: int


@dataclass(frozen=True)
class PostgresSinkProgress:
    """The row. `time` None: the table has never had contents."""

    owner: str
    uid: str
    retired: tuple[str, ...]
    term: int
    shard: str | None
    time: Time | None
    relation: int | None

    def time_of(self, shard: str, relation: int) -> Time | None:
        """The time of the shard whose contents the table with this oid has; None: it has others."""
        return self.time if self.shard == shard and self.relation == relation else None

    def check(self, sink: PostgresSink, writer: Writer) -> None:
        """Raises DestinationStopped (TableOfAnother, TableTakenOver), WrittenByLater."""
        if self.owner != sink.owner and self.time is not None:
            raise DestinationStopped(
                "TableOfAnother",
                f"table {sink.schema}.{sink.table} is written for view {self.owner}: name another table, or delete its"
                f" row of {sink.schema}.{PROGRESS_TABLE} and empty it",
            )
        if writer.uid in self.retired:
            raise DestinationStopped(
                TABLE_TAKEN_OVER,
                f"another Dataflow of this name has taken table {sink.schema}.{sink.table} over. If this one is to"
                f" write the table: end the other, delete the table's row of {sink.schema}.{PROGRESS_TABLE}, and empty"
                " the table",
            )
        if self.uid == writer.uid and self.term > writer.term:
            raise WrittenByLater(
                f"a revision of term {self.term} writes table {sink.schema}.{sink.table}; this one has {writer.term}"
            )

    def check_claimed(self, sink: PostgresSink, writer: Writer) -> None:
        """Raises as `check`; WrittenByLater where the row is not as `claim` left it."""
        self.check(sink, writer)
        if (self.owner, self.uid, self.term) != (sink.owner, writer.uid, writer.term):
            raise WrittenByLater(f"another Dataflow has begun to write table {sink.schema}.{sink.table} meanwhile")

    def retired_after(self, sink: PostgresSink, writer: Writer) -> list[str]:
        """The Dataflows that are refused once `writer` has the row."""
        is_replaced = self.owner == sink.owner and self.uid != writer.uid
        return list((*self.retired, self.uid)[-RETIRED_MAX:] if is_replaced else self.retired)


def create_progress(connection: Connection, sink: PostgresSink, writer: Writer) -> None:
    """Creates the table of progress rows, and the row, where they are not there. A row without a time claims nothing:
    the first view that delivers has the table."""
    place = _progress_table(sink)
    exists = connection.execute("select to_regclass(%s)", (place.as_string(connection),)).fetchone()
    if exists == (None,):
        with suppress(*_FASTER):
            connection.execute(sql.SQL(_CREATE).format(place))
    connection.execute(sql.SQL(_INSERT).format(place), (sink.table, sink.owner, writer.uid, writer.term))


def recorded_time(connection: Connection, sink: PostgresSink, contents: str) -> Time | None:
    """The time in the row, where it is of these contents; None where there is no such row. Locks nothing."""
    place = _progress_table(sink)
    if connection.execute("select to_regclass(%s)", (place.as_string(connection),)).fetchone() == (None,):
        return None
    query = sql.SQL("select time from {} where table_name = %s and owner = %s and shard = %s").format(place)
    row = connection.execute(query, (sink.table, sink.owner, contents)).fetchone()
    return None if row is None or row[0] is None else Time(row[0])


def locked_progress(connection: Connection, sink: PostgresSink) -> PostgresSinkProgress:
    """The row, locked until the end of the transaction. Raises PersistError."""
    query = sql.SQL(_SELECT + " for update").format(_progress_table(sink))
    row = connection.execute(query, (sink.table,)).fetchone()
    if row is None:
        raise PersistError(f"the row of table {sink.table} in {PROGRESS_TABLE} was deleted meanwhile")
    owner, uid, retired, term, shard, time, relation = row
    return PostgresSinkProgress(owner, uid, tuple(retired), term, shard, None if time is None else Time(time), relation)


def claim(connection: Connection, sink: PostgresSink, before: PostgresSinkProgress, writer: Writer) -> None:
    """Takes the row for the writer, in the transaction that locked and checked it: deliveries of earlier Dataflows and
    revisions that are under way are refused from then on. The time stays that of the table's contents."""
    values = (sink.owner, writer.uid, before.retired_after(sink, writer), writer.term, sink.table)
    connection.execute(sql.SQL(_CLAIM).format(_progress_table(sink)), values)


def record_progress(
    connection: Connection,
    sink: PostgresSink,
    before: PostgresSinkProgress,
    writer: Writer,
    shard: str,
    time: Time,
    relation: int,
) -> None:
    """Writes the row, in the transaction that wrote the table."""
    retired = before.retired_after(sink, writer)
    values = (sink.owner, writer.uid, retired, writer.term, shard, time, relation, sink.table)
    connection.execute(sql.SQL(_UPDATE).format(_progress_table(sink)), values)


def _progress_table(sink: PostgresSink) -> sql.Identifier:
    """The name of the table with the progress of sinks, in the schema of this one."""
    return sql.Identifier(sink.schema, PROGRESS_TABLE)
