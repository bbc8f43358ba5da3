"""The tables of the upstream database, as its catalogue defines them: found, checked, and pinned by oid.

The checks: the table is an ordinary one; the publication gives all kinds of its changes, without a filter; the user may
read it, and row security hides no row; no table inherits from it; its replica identity gives whole old rows, or a key
among the declared columns; it has the declared columns. None of them waits for a lock of a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
import psycopg

from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.postgres.catalogue.membership import Membership, find_membership
from tidemark_replica.storage.postgres.catalogue.printed_types import PrintedType, printed_types
from tidemark_replica.storage.postgres.pgoutput import ReplicatedRelation
from tidemark_replica.storage.postgres.stop import (
    COLUMN_CHANGED,
    NOT_PUBLISHED,
    PERMISSION_DENIED,
    REPLICA_IDENTITY,
    TABLE_MISSING,
    TYPE_NOT_SUPPORTED,
)
from tidemark_replica.storage.postgres.values.column_types import TypeDefinition, sql_type

Connection = psycopg.Connection[Any]
_NO_KEYS = ("float", "double", "array")
"""Equal keys of these types may be printed differently, or are not found by key."""
_TABLE = """
select c.oid, c.relkind, c.relreplident, c.relpersistence, c.relfilenode, pg_relation_filenode(c.oid),
       has_table_privilege(c.oid, 'SELECT') and has_schema_privilege(n.oid, 'USAGE'), row_security_active(c.oid),
       exists (select from pg_inherits where inhparent = c.oid), c.reltoastrelid,
       case when c.cmin = '0' and c.xmax = '0' then c.xmin::text::bigint else 0 end
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s
"""
_COLUMNS = """
select attname, attnum, atttypid, atttypmod, attgenerated <> '', xmin::text from pg_attribute
where attrelid = %s and attnum > 0 and not attisdropped order by attnum
"""
_KEY = """
select array_agg(a.attname::text order by k.place) from pg_index i
cross join unnest(i.indkey::int2[]) with ordinality k(number, place)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
where i.indrelid = %s and i.indisvalid and i.indimmediate and k.place <= i.indnkeyatts
  and case %s when 'd' then i.indisprimary else i.indisreplident end
"""
_TYPES = """
select oid, typname, typtype, typcategory, typbasetype, typtypmod, typelem from pg_type where oid = any(%s)
"""


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
    """A table as of its snapshot, or as of a later look that found nothing wrong.

    `file`: another one where all rows were written anew (ALTER TYPE, VACUUM FULL, TRUNCATE, SET UNLOGGED). `toast`: the
    table of the long values, 0 if there is none; ALTER TABLE makes it anew with the rows, and VACUUM FULL and TRUNCATE
    keep it. `types`: the enums and composite types that values of the columns have. `key`: the columns by which changes
    name rows; none: by whole rows.
    """

    oid: int
    file: int
    columns: tuple[PinnedColumn, ...]
    membership: Membership
    types: tuple[PrintedType, ...]
    key: tuple[str, ...] = ()
    toast: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PinnedTable:
        value = json.loads(text)
        value["membership"]["columns"] = value["membership"]["columns"] or ()  # null in older bindings
        return msgspec.convert(value, cls)

    def check_same(self, now: PinnedTable, described: Sequence[Sequence[str]] = ()) -> None:
        """Raises TableStopped where rows may not read as they did. `described`: the names of the columns by which the
        stream sent changes since the last look.

        ALTER COLUMN TYPE may change all values of a column and leave its type as it is (USING), and the stream says
        nothing of it: then both a column's definition and the table's file are other ones. Columns whose names were
        swapped and swapped back have other definitions, and the stream had them in another order.
        """
        if now.oid != self.oid:
            raise TableStopped(TABLE_MISSING, "the table was dropped, and another one has its name")
        self.membership.check_same(now.membership)
        check_key(self.key, now.key)
        changed = [one for one, other in zip(self.columns, now.columns, strict=True) if one != other]
        if any(replace(one, changed_by="") not in [replace(c, changed_by="") for c in now.columns] for one in changed):
            raise TableStopped(COLUMN_CHANGED, "a declared column was dropped, retyped or renamed, and is back")
        if changed and self._is_perhaps_altered(now):
            raise TableStopped(
                COLUMN_CHANGED,
                f"all rows were written anew: column {changed[0].name} was altered, or PostgreSQL wrote its default"
                " into the rows",
            )
        if changed and any(tuple(names) != now.membership.columns for names in described):
            raise TableStopped(
                COLUMN_CHANGED, f"column {changed[0].name} was altered while its table had other columns"
            )
        if changed and self.membership.via_root:
            raise TableStopped(
                NOT_PUBLISHED,
                f"column {changed[0].name} was altered, perhaps as the table was a partition for a while: its changes"
                " were then sent as another table's (publish_via_partition_root)",
            )
        types = {type.oid: type for type in now.types}
        for type in self.types:
            type.check_same(types.get(type.oid))

    def _is_perhaps_altered(self, now: PinnedTable) -> bool:
        """Whether ALTER TABLE may have written all rows anew."""
        return now.file != self.file and not (now.toast and now.toast == self.toast)

    def is_perhaps_unlogged(self, now: PinnedTable) -> bool:
        """Whether the table may have been unlogged for a while, unless a TRUNCATE made the new file. PostgreSQL allows
        it where no publication names the table."""
        return self._is_perhaps_altered(now) and not now.membership.names_since(self.membership)

    def column_indexes(self, relation: ReplicatedRelation) -> tuple[int, ...]:
        """Where the declared columns are in the relation. Raises TableStopped (ColumnChanged, ReplicaIdentity)."""
        there = {column.name: (index, column) for index, column in enumerate(relation.columns)}
        indexes = []
        for pinned in self.columns:
            index, column = there.get(pinned.name, (-1, None))
            if column is None:
                raise TableStopped(COLUMN_CHANGED, f"column {pinned.name} was dropped or renamed")
            if (column.type_oid, column.type_modifier) != (pinned.type_oid, pinned.type_modifier):
                raise TableStopped(COLUMN_CHANGED, f"column {pinned.name} has another type now")
            indexes.append(index)
        check_key(self.key, relation.key)
        return tuple(indexes)


@dataclass(frozen=True)
class UpstreamTable:
    """A table in the catalogue. `is_rewritten`: its file is another one than the snapshot has. `printed`: by the types
    of the columns, all that their values are printed by. `key`, `toast`: see PinnedTable. `emptied_by`: the transaction
    whose first command gave the table its definition, such as a TRUNCATE that no ALTER TABLE followed; 0 if it was
    another command."""

    oid: int
    file: int
    columns: tuple[tuple[str, int, int, int, bool, str], ...]
    types: Mapping[int, TypeDefinition]
    is_rewritten: bool
    membership: Membership
    printed: Mapping[int, tuple[PrintedType, ...]]
    key: tuple[str, ...]
    toast: int
    emptied_by: int

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
        types = {each.oid: each for name in names for each in self.printed[found[name][1]] if each.kind in "ce"}
        pinned = tuple(PinnedColumn(name, *found[name]) for name in names)
        printed = tuple(types[oid] for oid in sorted(types))
        return PinnedTable(self.oid, self.file, pinned, self.membership, printed, self.key_among(columns), self.toast)

    def key_among(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """The key. Raises TableStopped (ReplicaIdentity) where rows cannot be found by it."""
        declared = {column.name: column.type for column in columns}
        for name in self.key:
            what = f"column {name} of the replica identity is"
            if name not in declared:
                raise TableStopped(REPLICA_IDENTITY, f"{what} not declared; add it to `columns`")
            if declared[name].name in _NO_KEYS:
                how = "run ALTER TABLE ... REPLICA IDENTITY FULL upstream"
                raise TableStopped(REPLICA_IDENTITY, f"{what} {declared[name]}; {how}")
        return self.key

    def _checked(self, names: Iterable[str]) -> list[str]:
        generated = {name: is_generated for name, _, _, _, is_generated, _ in self.columns}
        types = {name: type for name, _, type, *_ in self.columns}
        for name in names:
            if name not in generated:
                raise TableStopped(COLUMN_CHANGED, f"there is no column {name}")
            if generated[name]:
                raise TableStopped(
                    TYPE_NOT_SUPPORTED, f"column {name} is generated, and not replicated; name the others in `columns`"
                )
            for each in self.printed[types[name]]:
                each.check_printable()
        return list(names)


def check_key(pinned: Sequence[str], now: Sequence[str] | None) -> None:
    """Raises TableStopped (ReplicaIdentity) where changes name rows by another key, or not at all (None)."""
    if now is None or set(now) != set(pinned):
        was, is_now = ("whole rows" if not key else f"key ({', '.join(key)})" for key in (pinned, now or ()))
        raise TableStopped(
            REPLICA_IDENTITY,
            f"the replica identity was {was}, and is {'nothing' if now is None else is_now}; give it back, or let the"
            " table begin anew",
        )


def _key(connection: Connection, oid: int, identity: str) -> tuple[str, ...]:
    """The columns of the replica identity; none for FULL. Raises TableStopped (ReplicaIdentity)."""
    if identity == "f":
        return ()
    (names,) = connection.execute(_KEY, (oid, identity)).fetchone() or (None,)
    if identity not in "di" or not names:
        raise TableStopped(
            REPLICA_IDENTITY,
            "updates and deletes do not name rows; add a primary key, or run ALTER TABLE ... REPLICA IDENTITY FULL"
            " upstream",
        )
    return tuple(names)


def find_table(connection: Connection, spec: PostgresSource, table: PostgresTable) -> UpstreamTable:
    """The table, checked. Raises TableStopped, SourceUnusable."""
    found = find_definition(connection, spec, table)
    _check_published(spec, table, [name for name, *_, generated, _ in found.columns if not generated], found.membership)
    return found


def find_definition(connection: Connection, spec: PostgresSource, table: PostgresTable) -> UpstreamTable:
    """The table, checked but for its columns. Raises TableStopped, SourceUnusable."""
    row = connection.execute(_TABLE, (table.schema, table.table)).fetchone()
    place = f"{table.schema}.{table.table}"
    if row is None:
        raise TableStopped(TABLE_MISSING, f"there is no table {place}; create it, or correct its name")
    oid, kind, identity, persistence, file, file_now, readable, filtered, is_parent, toast, emptied_by = row
    if kind != "r" or persistence != "p":
        raise TableStopped(TYPE_NOT_SUPPORTED, f"{place} is no ordinary table (a partitioned one, a view ...)")
    if is_parent:
        raise TableStopped(TYPE_NOT_SUPPORTED, f"other tables inherit from {place}: their rows are read as its own")
    if not readable:
        raise TableStopped(PERMISSION_DENIED, f"the user may not SELECT from {place}; run GRANT upstream")
    if filtered:
        raise TableStopped(PERMISSION_DENIED, f"row security hides rows of {place}; give the user BYPASSRLS")
    key = _key(connection, oid, identity)
    columns = tuple(connection.execute(_COLUMNS, (oid,)).fetchall())
    membership = find_membership(connection, spec, table, oid)
    oids = {column[2] for column in columns}
    types, printed = _types(connection, oids), printed_types(connection, oids)
    return UpstreamTable(oid, file, columns, types, file != file_now, membership, printed, key, toast, emptied_by)


def _check_published(spec: PostgresSource, table: PostgresTable, names: Sequence[str], membership: Membership) -> None:
    """Raises TableStopped where the publication leaves out a column that is declared, or that was found when the table
    was inspected; before that, any column of the table. `names`: of the columns that can be published."""
    published, followed = membership.columns, [column.name for column in table.columns or ()]
    wanted = table.names or followed or names
    if missing := [name for name in wanted if name in names and name not in published]:
        raise TableStopped(NOT_PUBLISHED, f"publication {spec.publication} leaves out column {missing[0]}; publish it")


def _types(connection: Connection, oids: set[int]) -> dict[int, TypeDefinition]:
    """The definitions of the types, and of those that they are based on."""
    found: dict[int, TypeDefinition] = {}
    while missing := sorted(oids - found.keys()):
        for row in connection.execute(_TYPES, (missing,)).fetchall():
            found[row[0]] = TypeDefinition(*row)
        oids = {oid for type in found.values() for oid in (type.base, type.element) if oid} | set(found)
    return found
