"""The membership of a table in the publication.

    ALTER PUBLICATION p DROP TABLE t   ─► changes of t are not sent
    ALTER PUBLICATION p ADD TABLE t    ─► the same state as before, by another row of pg_publication_rel

So the source pins the rows of pg_publication_rel (or of the schema, or of the parent). A table that still has one of
these rows was published all the time, also where another row of it came or went.

The view pg_publication_tables is not read: it locks all tables of the publication, and waits for each ALTER TABLE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.postgres.stop import NOT_PUBLISHED

Connection = psycopg.Connection[Any]
SCHEMAS_SINCE = 150_000
"""Publications have tables by their schema since this version of the server."""
_KINDS = ("pubinsert", "pubupdate", "pubdelete", "pubtruncate")
_PUBLICATION = "select p.oid, p.xmin::text, to_jsonb(p) from pg_publication p where pubname = %s"
_IN_SCHEMA = "exists (select from pg_publication_namespace where pnpubid = p.oid and pnnspid = {}.relnamespace)"
_OPTIONS_SINCE_15 = f"""
(r.prqual is not null) and not p.puballtables and not {_IN_SCHEMA.format("c")},
array(select attname::text from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped and case
    when r.prattrs is null or p.puballtables or {_IN_SCHEMA.format("c")}
        then attgenerated = '' or attgenerated = to_jsonb(p)->>'pubgencols' else attnum = any(r.prattrs::int2[]) end
    order by attnum)
"""
_OPTIONS = """
false, array(select attname::text from pg_attribute
    where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '' order by attnum)
"""
_PUBLISHED = """
select {wanted} from pg_publication p cross join pg_class c join pg_namespace n on n.oid = c.relnamespace
left join pg_publication_rel r on r.prpubid = p.oid and r.prrelid = c.oid
cross join lateral (
    select bool_and(has) as every, bool_or(has and x.oid = c.oid) as itself, bool_or(has and x.oid <> c.oid) as above
    from (
        select c.oid, c.relnamespace union all
        select a.oid, a.relnamespace from pg_partition_ancestors(c.oid) line join pg_class a on a.oid = line.relid
        where c.relispartition and line.relid <> c.oid
    ) x cross join lateral (
        select {in_schema} or p.puballtables <> exists (
            select from pg_publication_rel where prpubid = p.oid and prrelid = x.oid
        ) as has
    ) given
) line
where p.pubname = %(publication)s and c.relkind in ('r', 'p') and pg_relation_is_publishable(c.oid)
    and (c.relkind = 'r' or p.pubviaroot) and case
        when p.puballtables then every and not (p.pubviaroot and c.relispartition)
        when p.pubviaroot then itself and not above else itself or above end
"""
"""The published tables, by a query that takes no lock of them. A row of pg_publication_rel of a publication of all
tables leaves its table out (since PostgreSQL 19)."""
_ORDER = "order by n.nspname <> 'public', n.nspname, c.relname"
_LINE = "select {oid}::oid union select relid from pg_partition_ancestors({oid})"
"""The table, and the partitioned tables that it is a partition of."""
_BY_NAME = f"""
select case prrelid when %(table)s then 'name' else 'parent' end, oid, xmin::text
from pg_publication_rel where prpubid = %(publication)s and prrelid in ({_LINE.format(oid="%(table)s")})
"""
_BY_SCHEMA = f"""
select 'schema', p.oid, p.xmin::text from pg_publication_namespace p join pg_class c on c.relnamespace = p.pnnspid
where p.pnpubid = %(publication)s and c.oid in ({_LINE.format(oid="%(table)s")})
"""
_PLACE = f"""
select coalesce(string_agg(xmin::text, ' ' order by objid, refobjid), '') from pg_depend
where classid = 'pg_class'::regclass and objsubid = 0 and objid in ({_LINE.format(oid="%(table)s")})
    and refclassid in ('pg_namespace'::regclass, 'pg_class'::regclass)
"""
"""A text that differs where the table was moved to another schema, or detached from its parent, and is back."""


@dataclass(frozen=True)
class Publication:
    """A publication. `changed_by`: the transaction that changed its options last."""

    oid: int
    changed_by: str
    all_tables: bool
    via_root: bool


@dataclass(frozen=True)
class Membership:
    """`entries`: the rows of the catalogue that give the publication the table: by its name, by a parent that it is a
    partition of, by a schema, or all. `columns`: the published ones. `via_root`: while the table is a partition, its
    changes are sent as those of another table."""

    publication: int
    changed_by: str
    entries: tuple[str, ...]
    via_root: bool
    columns: tuple[str, ...]

    def names_since(self, before: Membership) -> bool:
        """Whether the publication has named the table ever since."""
        return any(entry.startswith("name ") for entry in set(self.entries) & set(before.entries))

    def check_same(self, now: Membership) -> None:
        """Raises TableStopped where changes may not have been sent."""
        if now.publication != self.publication or now.changed_by != self.changed_by:
            raise TableStopped(NOT_PUBLISHED, "the publication was altered; changes meanwhile may not have been sent")
        if not set(now.entries) & set(self.entries):
            raise TableStopped(
                NOT_PUBLISHED, "the publication lost the table, and has it again; changes meanwhile were not sent"
            )


def check_publication(connection: Connection, name: str) -> Publication:
    """The publication. Raises SourceUnusable where there is none, or it leaves kinds of changes out."""
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        raise SourceUnusable("a database with encoding SQL_ASCII is not read: its texts have no known encoding")
    row = connection.execute(_PUBLICATION, (name,)).fetchone()
    if row is None:
        raise SourceUnusable(f"there is no publication {name}; run CREATE PUBLICATION upstream")
    oid, changed_by, options = row
    if missing := [kind.removeprefix("pub") for kind in _KINDS if not options.get(kind)]:
        raise SourceUnusable(
            f"publication {name} does not publish {', '.join(missing)}; run ALTER PUBLICATION upstream"
        )
    return Publication(oid, changed_by, options["puballtables"], bool(options.get("pubviaroot")))


def find_membership(connection: Connection, spec: PostgresSource, table: PostgresTable, oid: int) -> Membership:
    """Raises TableStopped (NotPublished) where the publication lacks the table, or filters its rows; SourceUnusable."""
    publication = check_publication(connection, spec.publication)
    given = {"publication": spec.publication, "table": oid}
    options = _OPTIONS_SINCE_15 if _has_schemas(connection) else _OPTIONS
    row = connection.execute(_published(connection, options) + " and c.oid = %(table)s", given).fetchone()
    if row is None:
        raise TableStopped(
            NOT_PUBLISHED, f"publication {spec.publication} does not have the table; add it by ALTER PUBLICATION"
        )
    is_filtered, columns = row
    if is_filtered:
        raise TableStopped(NOT_PUBLISHED, f"publication {spec.publication} filters rows of the table; remove its WHERE")
    return Membership(
        publication.oid,
        publication.changed_by,
        _entries(connection, publication, oid),
        publication.via_root,
        tuple(columns),
    )


def published_names(connection: Connection, publication: str) -> list[tuple[str, str]]:
    """The schemas and names of the tables of the publication, those of `public` first."""
    query = _published(connection, "n.nspname::text, c.relname::text") + _ORDER
    return connection.execute(query, {"publication": publication}).fetchall()


def _published(connection: Connection, wanted: str) -> str:
    return _PUBLISHED.format(wanted=wanted, in_schema=_IN_SCHEMA.format("x") if _has_schemas(connection) else "false")


def _has_schemas(connection: Connection) -> bool:
    return connection.info.server_version >= SCHEMAS_SINCE


def _entries(connection: Connection, publication: Publication, oid: int) -> tuple[str, ...]:
    given = {"publication": publication.oid, "table": oid}
    rows = connection.execute(_BY_NAME, given).fetchall()
    if _has_schemas(connection):
        rows += connection.execute(_BY_SCHEMA, given).fetchall()
    (place,) = connection.execute(_PLACE, given).fetchone() or ("",)
    entries = [f"{kind} {row} {xmin}" + ("" if kind == "name" else f" {place}") for kind, row, xmin in rows]
    return (*entries, *(["all"] if publication.all_tables else []))
