"""The table that a sink writes: found in the catalogue, checked by name and type, or created.

The checks: an ordinary or partitioned table, without others that inherit from it; logged, as the server empties an
unlogged one after a crash, while the time of its rows stays; each column of the view, of a type that holds all its
values; a unique index on exactly the key. Columns beyond the view's are the user's: the sink leaves them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_protocol.types import Column
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.postgres.column_types import NAME_BYTES_MAX, created_type, takes

Connection = psycopg.Connection[Any]
TABLE_NOT_SUITABLE = "TableNotSuitable"
_TABLE = """
select c.oid::bigint, c.relkind::text, c.relkind = 'r' and exists (select from pg_inherits where inhparent = c.oid),
    c.relpersistence = 'p' and not exists (
        select from pg_partition_tree(c.oid) t join pg_class p on p.oid = t.relid where p.relpersistence <> 'p'
    )
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s
"""
_COLUMNS = """
select attname::text, format_type(atttypid, atttypmod), attgenerated <> '' from pg_attribute
where attrelid = %s and attnum > 0 and not attisdropped
"""
_KEYS = """
select array_agg(a.attname::text) from pg_index i
cross join unnest(i.indkey::int2[]) with ordinality k(number, place)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
where i.indrelid = %s and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null
  and i.indexprs is null and k.place <= i.indnkeyatts
group by i.indexrelid
"""


def find_table(connection: Connection, sink: PostgresSink, columns: Sequence[Column]) -> int | None:
    """The oid of the table, which is checked; None where there is none. `columns`: the view's. Raises
    DestinationStopped (TableNotSuitable)."""
    for name in (sink.schema, sink.table):
        if len(name.encode()) > NAME_BYTES_MAX:  # the server would take the beginning of it for the name
            raise _not_suitable(sink, f"PostgreSQL's names have {NAME_BYTES_MAX} bytes at most: {name} has more")
    found = connection.execute(_TABLE, (sink.schema, sink.table)).fetchone()
    if found is None:
        return None
    oid, kind, has_heirs, is_kept = found
    if kind not in ("r", "p") or has_heirs:
        raise _not_suitable(sink, "is no ordinary or partitioned table, or others inherit from it")
    if not is_kept:
        raise _not_suitable(sink, "is unlogged, or has such a partition: ALTER TABLE ... SET LOGGED")
    _check_columns(connection, sink, columns, oid)
    keys = [set(key) for (key,) in connection.execute(_KEYS, (oid,)).fetchall()]
    if set(sink.key) not in keys:
        raise _not_suitable(sink, f"has no unique index on exactly the key ({', '.join(sink.key)}): create one")
    return int(oid)


def create_table(connection: Connection, sink: PostgresSink, columns: Sequence[Column]) -> int:
    """Creates the table with the key as its primary key, in the transaction of the connection. Returns its oid."""
    defined = [sql.SQL("{} {}").format(sql.Identifier(c.name), sql.SQL(created_type(c.type) or "")) for c in columns]
    key = sql.SQL("primary key ({})").format(names(sink.key))
    made = sql.SQL("create table {} ({})").format(qualified(sink), sql.SQL(", ").join([*defined, key]))
    connection.execute(made)
    found = find_table(connection, sink, columns)
    assert found is not None
    return found


def is_empty(connection: Connection, sink: PostgresSink) -> bool:
    """Whether the table, which exists, has no row."""
    return connection.execute(sql.SQL("select from {} limit 1").format(qualified(sink))).fetchone() is None


def qualified(sink: PostgresSink) -> sql.Identifier:
    return sql.Identifier(sink.schema, sink.table)


def names(columns: Sequence[str]) -> sql.Composed:
    """A list of names, as SQL has it."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _check_columns(connection: Connection, sink: PostgresSink, columns: Sequence[Column], oid: int) -> None:
    found = {name: (declared, made) for name, declared, made in connection.execute(_COLUMNS, (oid,)).fetchall()}
    for column in columns:
        declared, is_generated = found.get(column.name, ("", False))
        if not declared:
            raise _not_suitable(sink, f"has no column {column.name}: add it, of type {created_type(column.type)}")
        if is_generated or not takes(declared, column.type):
            what = "is generated" if is_generated else f"is of type {declared}"
            wanted = f"the view's is {column.type}, which {created_type(column.type)} holds"
            raise _not_suitable(sink, f"column {column.name} {what}; {wanted}")


def _not_suitable(sink: PostgresSink, message: str) -> DestinationStopped:
    return DestinationStopped(TABLE_NOT_SUITABLE, f"table {sink.schema}.{sink.table}: {message}")
