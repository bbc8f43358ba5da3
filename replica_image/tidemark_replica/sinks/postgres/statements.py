"""The SQL that makes a table equal to a view, from rows that were copied into a temporary table.

changes    rows with `__diff`: the table loses the negative ones, and gains the others
contents   all rows of a time

The database's equality finds a row by its key. Whether a value has changed is asked of its bytes (`*=`, `*<>`): 0.0
equals -0.0, and under some collations 'A' equals 'a'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from tidemark_persist import DIFF
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_protocol.types import Column
from tidemark_replica.sinks.postgres.column_types import created_type
from tidemark_replica.sinks.postgres.copied_rows import copied_blocks
from tidemark_replica.sinks.postgres.target_table import Connection, names, qualified

CHANGES, CONTENTS = "tidemark_changes", "tidemark_contents"
_DIFF = sql.Identifier(DIFF)


@dataclass(frozen=True)
class ChangeConflicts:
    """The conflicts that the changes would cause. `copies`, `nulls`: some key would be there twice, or be NULL.
    `rows_differ`: a row that the table should lose is not in it, or a key that is new is."""

    copies: bool
    nulls: bool
    rows_differ: bool


@dataclass(frozen=True)
class Statements:
    """The statements for one table. `columns`: the view's."""

    sink: PostgresSink
    columns: Sequence[Column]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def create_temporary(self, connection: Connection, name: str, *, like_target: bool, drops: bool) -> None:
        """A temporary table for rows with `__diff`. `like_target`: with the types of the target's columns. `drops`: it
        goes with the transaction."""
        ends = sql.SQL(" on commit drop" if drops else "")
        if like_target:
            query = sql.SQL("create temporary table {}{} as select {}, 0::bigint as {} from {} with no data")
            made = query.format(sql.Identifier(name), ends, names(self.names), _DIFF, qualified(self.sink))
        else:
            query = sql.SQL("create temporary table {} ({}, {} bigint){}")
            made = query.format(sql.Identifier(name), self._definitions(), _DIFF, ends)
        connection.execute(made)

    def copy(self, connection: Connection, name: str, rows: pa.Table) -> None:
        """`rows`: the view's columns and `__diff`."""
        columns = names([*self.names, DIFF])
        query = sql.SQL("copy {} ({}) from stdin (format csv)").format(sql.Identifier("pg_temp", name), columns)
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            for block in copied_blocks(rows.select([*self.names, DIFF])):
                copy.write(block)

    def find(self, connection: Connection) -> ChangeConflicts:
        """Looks at the changes, before anything is written."""
        connection.execute(sql.SQL("analyze {}").format(sql.Identifier("pg_temp", CHANGES)))
        query = sql.SQL("""
            with keys as (
                select {key}, sum({diff}) filter (where {diff} > 0) as gained, bool_or({diff} < 0) as loses
                from pg_temp.{changes} group by {key}
            )
            select coalesce(max(gained), 0) > 1, coalesce(bool_or(gained > 0 and ({null})), false),
                exists (select from keys n join {target} t on {joined} where n.gained > 0 and not n.loses)
                or exists (
                    select from pg_temp.{changes} n where n.{diff} < 0 and not exists (
                        select from {target} t where {joined} and row({old}) is not distinct from row({lost})
                    )
                )
            from keys""").format(
            key=names(self.sink.key),
            diff=_DIFF,
            changes=sql.Identifier(CHANGES),
            target=qualified(self.sink),
            null=sql.SQL(" or ").join(sql.SQL("{} is null").format(sql.Identifier(k)) for k in self.sink.key),
            joined=self._joined("n", "t"),
            old=self._column_list("t", self.names),
            lost=self._column_list("n", self.names),
        )
        copies, nulls, wrong = connection.execute(query).fetchone() or (False, False, False)
        return ChangeConflicts(copies, nulls, wrong)

    def apply_changes(self, connection: Connection) -> None:
        """Deletes the rows whose key goes, and upserts the others. A key whose bytes change goes and comes."""
        connection.execute(
            sql.SQL(
                "delete from {} t using pg_temp.{} n where n.{} < 0 and {} and not exists ("
                "select from pg_temp.{} g where g.{} > 0 and {})"
            ).format(
                qualified(self.sink),
                sql.Identifier(CHANGES),
                _DIFF,
                self._joined("n", "t"),
                sql.Identifier(CHANGES),
                _DIFF,
                self._identical("g", "n"),
            )
        )
        connection.execute(self._upsert(CHANGES, only_others=False))

    def check_contents(self, connection: Connection) -> None:
        """Raises psycopg's UniqueViolation where two rows have one key."""
        made = sql.SQL("create unique index on pg_temp.{} ({})").format(sql.Identifier(CONTENTS), names(self.sink.key))
        connection.execute(made)
        connection.execute(sql.SQL("analyze pg_temp.{}").format(sql.Identifier(CONTENTS)))

    def apply_contents(self, connection: Connection) -> None:
        """Deletes the rows whose key is not in the contents, and upserts those that differ."""
        connection.execute(
            sql.SQL("delete from {} t where not exists (select from pg_temp.{} n where {})").format(
                qualified(self.sink), sql.Identifier(CONTENTS), self._identical("n", "t")
            )
        )
        connection.execute(self._upsert(CONTENTS, only_others=True))

    def _upsert(self, source: str, *, only_others: bool) -> sql.Composed:
        """`only_others`: rows that are there with the same values are not written."""
        others = [name for name in self.names if name not in self.sink.key]
        if others:
            assigned = sql.SQL(", ").join(
                sql.SQL("{} = excluded.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in others
            )
            action: sql.Composable = sql.SQL("update set {}").format(assigned)
            if only_others:
                differ = sql.SQL(" where row({})::record *<> row({})::record")
                action += differ.format(self._column_list("t", others), self._column_list("excluded", others))
        else:
            action = sql.SQL("nothing")
        return sql.SQL("insert into {} as t ({}) select {} from pg_temp.{} where {} > 0 on conflict ({}) do {}").format(
            qualified(self.sink),
            names(self.names),
            names(self.names),
            sql.Identifier(source),
            _DIFF,
            names(self.sink.key),
            action,
        )

    def _joined(self, one: str, other: str) -> sql.Composed:
        pairs = [
            sql.SQL("{} = {}").format(sql.Identifier(one, key), sql.Identifier(other, key)) for key in self.sink.key
        ]
        return sql.SQL(" and ").join(pairs)

    def _identical(self, one: str, other: str) -> sql.Composed:
        """The same key, byte by byte. Its equality comes first: the database has an index of that."""
        same = sql.SQL("{} and row({})::record *= row({})::record")
        return same.format(
            self._joined(one, other), self._column_list(one, self.sink.key), self._column_list(other, self.sink.key)
        )

    def _column_list(self, table: str, columns: Sequence[str]) -> sql.Composed:
        """The columns of a table, separated by commas."""
        return sql.SQL(", ").join(sql.Identifier(table, name) for name in columns)

    def _definitions(self) -> sql.Composed:
        return sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(c.name), sql.SQL(created_type(c.type) or "")) for c in self.columns
        )
