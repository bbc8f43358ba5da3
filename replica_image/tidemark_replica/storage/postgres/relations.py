"""The tables of the upstream database, as its catalogue defines them: found, checked, and pinned by oid.

The checks: the table is an ordinary one; the publication gives all kinds of its changes, without a filter; the user may
read it, and row security hides no row; its replica identity gives whole old rows; it has the declared columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import psycopg

from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.postgres.column_types import TypeDefinition, sql_type
from tidemark_replica.storage.postgres.pgoutput import Relation
from tidemark_replica.storage.postgres.stop import (
    COLUMN_CHANGED,
    NOT_PUBLISHED,
    PERMISSION_DENIED,
    REPLICA_IDENTITY,
    TABLE_MISSING,
    TYPE_NOT_SUPPORTED,
)

Connection = psycopg.Connection[Any]
_TABLE = """
select c.oid, c.relkind, c.relreplident, c.relpersistence, c.relfilenode, pg_relation_filenode(c.oid),
       has_table_privilege(c.oid, 'SELECT') and has_schema_privilege(n.oid, 'USAGE'), row_security_active(c.oid),
       pg_relation_size(c.oid) / current_setting('block_size')::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s
"""
_COLUMNS = """
select attname, attnum, atttypid, atttypmod, attgenerated <> '', xmin::text from pg_attribute
where attrelid = %s and attnum > 0 and not attisdropped order by attnum
"""
_TYPES = """
select oid, typname, typtype, typcategory, typbasetype, typtypmod, typelem from pg_type where oid = any(%s)
"""
_PUBLISHED = "select to_jsonb(t) from pg_publication_tables t where pubname = %s and schemaname = %s and tablename = %s"
_PUBLICATION = "select to_jsonb(p) from pg_publication p where pubname = %s"
_KINDS = ("pubinsert", "pubupdate", "pubdelete", "pubtruncate")


@dataclass(frozen=True)
class PinnedColumn:
    """A declared column. `number` differs where a column was dropped and another of its name was added; `changed_by`,
    a transaction, where its definition changed in any way."""

    name: str
    number: int
    type_oid: int
    type_modifier: int
    changed_by: str


@dataclass(frozen=True)
class PinnedTable:
    """A table as of its snapshot, or as of a later look that found nothing wrong. `file`: it has another one where all
    of its rows were written anew (ALTER TYPE, VACUUM FULL, TRUNCATE)."""

    oid: int
    file: int
    columns: tuple[PinnedColumn, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PinnedTable:
        value = json.loads(text)
        return cls(value["oid"], value["file"], tuple(PinnedColumn(**column) for column in value["columns"]))

    def check_same(self, now: PinnedTable) -> None:
        """Raises TableStopped where the declared columns are not what they were.

        ALTER COLUMN TYPE may change all values of a column and leave its type as it is (USING), and the stream says
        nothing of it: then both a column's definition and the table's file are other ones.
        """
        if now.oid != self.oid:
            raise TableStopped(TABLE_MISSING, "the table was dropped, and another one has its name")
        changed = [one for one, other in zip(self.columns, now.columns, strict=True) if one != other]
        if any(replace(one, changed_by="") not in [replace(c, changed_by="") for c in now.columns] for one in changed):
            raise TableStopped(COLUMN_CHANGED, "a declared column was dropped or retyped, and is back")
        if changed and now.file != self.file:
            raise TableStopped(COLUMN_CHANGED, f"column {changed[0].name} was altered, and all rows were written anew")

    def places(self, relation: Relation) -> tuple[int, ...]:
        """Where the declared columns are in the relation. Raises TableStopped (ColumnChanged, ReplicaIdentity)."""
        there = {column.name: (index, column) for index, column in enumerate(relation.columns)}
        places = []
        for pinned in self.columns:
            index, column = there.get(pinned.name, (-1, None))
            if column is None:
                raise TableStopped(COLUMN_CHANGED, f"column {pinned.name} was dropped or renamed")
            if (column.type_oid, column.type_modifier) != (pinned.type_oid, pinned.type_modifier):
                raise TableStopped(COLUMN_CHANGED, f"column {pinned.name} has another type now")
            places.append(index)
        check_identity(relation.identity)
        return tuple(places)


@dataclass(frozen=True)
class TableDefinition:
    """A table in the catalogue. `is_rewritten`: its file is another one than the snapshot has. `pages`: its size."""

    oid: int
    file: int
    columns: tuple[tuple[str, int, int, int, bool, str], ...]
    types: Mapping[int, TypeDefinition]
    is_rewritten: bool
    pages: int

    def sql_columns(self, names: Sequence[str]) -> tuple[Column, ...]:
        """The columns of these names (all if there are none), with their SQL types."""
        found = {name: (type, modifier) for name, _, type, modifier, *_ in self.columns}
        return tuple(Column(name, sql_type(*found[name], self.types)) for name in self._checked(names or tuple(found)))

    def pinned(self, columns: Sequence[Column]) -> PinnedTable:
        """The table with the declared columns. Raises TableStopped where they are of other types."""
        names = [column.name for column in columns]
        for now, declared in zip(self.sql_columns(names), columns, strict=True):
            if now.type != declared.type:
                raise TableStopped(COLUMN_CHANGED, f"column {now.name} is {now.type} now; it was {declared.type}")
        found = {name: (number, type, modifier, by) for name, number, type, modifier, _, by in self.columns}
        return PinnedTable(self.oid, self.file, tuple(PinnedColumn(name, *found[name]) for name in names))

    def _checked(self, names: Iterable[str]) -> list[str]:
        generated = {name: is_generated for name, _, _, _, is_generated, _ in self.columns}
        for name in names:
            if name not in generated:
                raise TableStopped(COLUMN_CHANGED, f"there is no column {name}")
            if generated[name]:
                raise TableStopped(
                    TYPE_NOT_SUPPORTED, f"column {name} is generated, and not replicated; name the others in `columns`"
                )
        return list(names)


def check_identity(identity: str) -> None:
    """Raises TableStopped (ReplicaIdentity)."""
    if identity != "f":
        raise TableStopped(
            REPLICA_IDENTITY,
            "updates and deletes do not give whole old rows; run ALTER TABLE ... REPLICA IDENTITY FULL upstream",
        )


def find_table(connection: Connection, spec: PostgresSource, table: PostgresTable) -> TableDefinition:
    """The table, checked. Raises TableStopped, SourceUnusable."""
    check_publication(connection, spec.publication)
    row = connection.execute(_TABLE, (table.schema, table.table)).fetchone()
    if row is None:
        raise TableStopped(
            TABLE_MISSING, f"there is no table {table.schema}.{table.table}; create it, or correct its name"
        )
    oid, kind, identity, persistence, in_snapshot, now, readable, filtered, pages = row
    if kind != "r" or persistence != "p":
        raise TableStopped(
            TYPE_NOT_SUPPORTED, f"{table.schema}.{table.table} is no ordinary table (a partitioned one, a view ...)"
        )
    if not readable:
        raise TableStopped(
            PERMISSION_DENIED, f"the user may not SELECT from {table.schema}.{table.table}; run GRANT upstream"
        )
    if filtered:
        raise TableStopped(
            PERMISSION_DENIED, f"row security hides rows of {table.schema}.{table.table}; give the user BYPASSRLS"
        )
    check_identity(identity)
    columns = tuple(connection.execute(_COLUMNS, (oid,)).fetchall())
    _check_published(connection, spec, table, [name for name, *_ in columns])
    types = _types(connection, {column[2] for column in columns})
    return TableDefinition(oid, now, columns, types, in_snapshot != now, pages)


def check_publication(connection: Connection, name: str) -> None:
    """Raises SourceUnusable where there is no such publication, or it leaves kinds of changes out."""
    (encoding,) = connection.execute("show server_encoding").fetchone() or ("",)
    if encoding == "SQL_ASCII":
        raise SourceUnusable("a database with encoding SQL_ASCII is not read: its texts have no known encoding")
    row = connection.execute(_PUBLICATION, (name,)).fetchone()
    if row is None:
        raise SourceUnusable(f"there is no publication {name}; run CREATE PUBLICATION upstream")
    if missing := [kind.removeprefix("pub") for kind in _KINDS if not row[0].get(kind)]:
        raise SourceUnusable(
            f"publication {name} does not publish {', '.join(missing)}; run ALTER PUBLICATION upstream"
        )


def _check_published(connection: Connection, spec: PostgresSource, table: PostgresTable, names: Sequence[str]) -> None:
    row = connection.execute(_PUBLISHED, (spec.publication, table.schema, table.table)).fetchone()
    if row is None:
        raise TableStopped(
            NOT_PUBLISHED, f"publication {spec.publication} does not have the table; add it by ALTER PUBLICATION"
        )
    if row[0].get("rowfilter") is not None:
        raise TableStopped(NOT_PUBLISHED, f"publication {spec.publication} filters rows of the table; remove its WHERE")
    published = row[0].get("attnames")
    wanted = table.names or names
    if published is not None and (missing := [name for name in wanted if name in names and name not in published]):
        raise TableStopped(NOT_PUBLISHED, f"publication {spec.publication} leaves out column {missing[0]}; publish it")


def _types(connection: Connection, oids: set[int]) -> dict[int, TypeDefinition]:
    """The definitions of the types, and of those that they are based on."""
    found: dict[int, TypeDefinition] = {}
    while missing := sorted(oids - found.keys()):
        for row in connection.execute(_TYPES, (missing,)).fetchall():
            found[row[0]] = TypeDefinition(*row)
        oids = {oid for type in found.values() for oid in (type.base, type.element) if oid} | set(found)
    return found
