"""The definitions of types that the texts of a column's values depend on, besides the rows themselves.

    ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'   changes the text of all rows that have it, and writes no WAL for them
    ALTER TYPE point3 ADD ATTRIBUTE z int         the same, for composite types

A column's type depends on others: a domain on its base, an array on its element, a composite type on its attributes, a
range on its subtype. `parts` has twelve digits for each label of an enum, or each attribute of a composite type.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import psycopg

from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.postgres.stop import COLUMN_CHANGED, TYPE_NOT_SUPPORTED

_USED = """
with recursive used(root, oid) as (
    select oid, oid from pg_type where oid = any(%s)
  union
    select u.root, n.oid from used u join pg_type t on t.oid = u.oid cross join lateral (
        select t.typbasetype
        union select t.typelem where t.typcategory = 'A'
        union select atttypid from pg_attribute
              where t.typtype = 'c' and attrelid = t.typrelid and attnum > 0 and not attisdropped
        union select rngsubtype from pg_range where rngtypid = t.oid
        union select rngtypid from pg_range where rngmultitypid = t.oid
    ) n(oid) where n.oid <> 0
)
select u.root, t.oid, t.typname, t.typtype::text, coalesce(case t.typtype
    when 'e' then (
        select string_agg(left(md5(concat_ws(' ', e.oid, e.xmin::text, enumlabel)), 12), '' order by e.oid)
        from pg_enum e where enumtypid = t.oid)
    when 'c' then (
        select string_agg(left(md5(concat_ws(' ', attnum, atttypid, atttypmod, attisdropped)), 12), '' order by attnum)
        from pg_attribute where attrelid = t.typrelid and attnum > 0)
    end, '')
from used u join pg_type t on t.oid = u.oid
"""
_FIRST_OF_USERS = 16_384


@dataclass(frozen=True)
class PrintedType:
    """A type that values of a column are printed by. `kind`: as in pg_type."""

    oid: int
    name: str
    kind: str
    parts: str

    def check_same(self, now: PrintedType | None) -> None:
        """Raises TableStopped where values of before may be printed differently. New labels of an enum are harmless."""
        if now is None or not (now.parts.startswith(self.parts) if self.kind == "e" else now.parts == self.parts):
            what = "a label of enum" if self.kind == "e" else "composite type"
            raise TableStopped(COLUMN_CHANGED, f"{what} {self.name} was changed, and so were all values that have it")

    def check_printable(self) -> None:
        """Raises TableStopped (TypeNotSupported) where the text depends on the session, or on other objects' names."""
        if self.oid < _FIRST_OF_USERS and (self.name.startswith("reg") or self.name == "aclitem"):
            raise TableStopped(TYPE_NOT_SUPPORTED, f"type {self.name} is printed differently in different sessions")


def printed_types(connection: psycopg.Connection[Any], types: Collection[int]) -> dict[int, tuple[PrintedType, ...]]:
    """The types that each of the types is printed by, itself included."""
    found: dict[int, tuple[PrintedType, ...]] = {}
    for root, *row in connection.execute(_USED, (sorted(types),)).fetchall():
        found[root] = (*found.get(root, ()), PrintedType(*row))
    return found
