"""The tables of a DataSource that follows a whole publication (`spec.postgres.allTables`).

    tables of the spec    with the names and columns that it gives them
    pinned tables         as they are, also those that upstream has no more: their conditions say so
    published tables      those that are neither, by their names upstream: they are added, as if the spec named them

A table is persisted, with its name, before it is ingested. So the name that it has does not depend on later looks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemark_operator.planning.table_edit import MAX_TABLES
from tidemark_protocol.plan.ingestion import IngestionDescription, PostgresSource, PostgresTable, PublicationTable
from tidemark_protocol.plan.successors import newest, spec_name

_NAME = re.compile(r"[a-z0-9][-_a-z0-9]{0,62}")
MAX_NAMED = 5
"""A message names so many tables, and so many columns of each."""
Upstream = tuple[str, str]
"""The schema and the name of a table in its database."""


@dataclass(frozen=True)
class WholePublication:
    """A source as the spec has it, which asks for all tables of its publication, and those that it excepts."""

    source: PostgresSource
    excepted: frozenset[Upstream] = frozenset()


@dataclass(frozen=True)
class PublishedSource:
    """`source`: all tables that are followed, by name. `repeated`: names in it that removed tables of the DataSource
    had; nobody chose them, so they may come again. `left_out`, `columns_left_out`: tables of the publication, and
    columns of tables, that are not followed, each with the reason."""

    source: PostgresSource
    repeated: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()
    columns_left_out: tuple[str, ...] = ()


def sought(wanted: WholePublication, pinned: IngestionDescription | None) -> PostgresSource:
    """The source with which a replica looks for tables: of those that it names nothing is to be found out. A table of
    whose columns some are left out is looked at again."""
    named = {upstream(table) for table in wanted.source.tables}
    known = [table for table in _kept_tables(wanted, pinned) if not table.names]
    excepted = [PostgresTable(f"{schema}.{name}", schema, name) for schema, name in sorted(wanted.excepted - named)]
    return replace(wanted.source, tables=(*wanted.source.tables, *known, *excepted))


def with_published_tables(
    wanted: WholePublication,
    pinned: IngestionDescription | None,
    published: Sequence[PublicationTable],
    unexamined: int = 0,
) -> PublishedSource:
    """The tables of the spec, those that are pinned, and published ones that are none of these. `published`: as a
    replica found them; empty where nobody looked. `unexamined`: the number of further ones, which nobody looked at."""
    named, kept = wanted.source.tables, _kept_tables(wanted, pinned)
    followed = {upstream(table) for table in (*named, *_pinned(pinned))}
    new = [each for each in published if not each.refused and (each.schema, each.table) not in followed]
    new = [each for each in new if (each.schema, each.table) not in wanted.excepted]
    refused = [each for each in published if each.refused and (each.schema, each.table) not in followed]
    left_out = [f"{_title(each)}: {each.refused}" for each in refused]
    names = {(each.schema, each.table): _name(each) for each in new}
    taken = {spec_name(table.name): table for table in (*_pinned(pinned), *named)}
    asked = Counter(names.values())
    there = {spec_name(table.name) for table in _pinned(pinned)}
    room = MAX_TABLES - len(pinned.tables if pinned is not None else ()) - sum(t.name not in there for t in named)
    added: list[PostgresTable] = []
    for each in new:
        name = names[each.schema, each.table]
        if why := _obstacle(name, taken, asked, len(added) < room):
            left_out.append(f"{_title(each)}: {why}")
        else:
            added.append(PostgresTable(name, each.schema, each.table, each.names))
    if unexamined:
        left_out.append(f"{unexamined} more tables were not looked at: name those that are not wanted in exceptTables")
    removed = {spec_name(name) for name in (pinned.removed if pinned is not None else ())}
    found = {upstream(table) for table in (*kept, *added)}
    return PublishedSource(
        replace(wanted.source, tables=(*named, *kept, *added), all_tables=False),
        frozenset(table.name for table in added if table.name in removed),
        tuple(sorted(left_out)),
        tuple(
            f"{_title(each)} without {abridged(each.columns_left_out)}"
            for each in published
            if each.columns_left_out and (each.schema, each.table) in found
        ),
    )


def unnamed_tables(published: PublishedSource, named: PostgresSource) -> frozenset[str]:
    """The tables that are followed with all of their columns, but those that the spec itself names."""
    own = {table.name for table in named.tables}
    return frozenset(t.name for t in published.source.tables if t.name not in own and not t.names)


def upstream(table: PostgresTable) -> Upstream:
    """The schema and the name in the database."""
    return table.schema, table.table


def abridged(texts: Sequence[str]) -> str:
    """The first MAX_NAMED of the texts, and how many more there are."""
    more = len(texts) - MAX_NAMED
    return "; ".join((*texts[:MAX_NAMED], *([f"{more} more"] if more > 0 else ())))


def _pinned(pinned: IngestionDescription | None) -> tuple[PostgresTable, ...]:
    return pinned.source.tables if pinned is not None and isinstance(pinned.source, PostgresSource) else ()


def _kept_tables(wanted: WholePublication, pinned: IngestionDescription | None) -> list[PostgresTable]:
    """The pinned tables that the spec neither names nor excepts, as a spec would name them."""
    last = set(newest(table.name for table in _pinned(pinned)).values())
    named = {upstream(table) for table in wanted.source.tables} | wanted.excepted
    names = {table.name for table in wanted.source.tables}
    return [
        replace(table, name=spec_name(table.name), columns=None, successor=False)
        for table in _pinned(pinned)
        if table.name in last and upstream(table) not in named and spec_name(table.name) not in names
    ]


def _name(table: PublicationTable) -> str:
    """The name in SQL, which compares names without case."""
    return (table.table if table.schema == "public" else f"{table.schema}_{table.table}").lower()


def _title(table: PublicationTable) -> str:
    return f"{table.schema}.{table.table}"


def _obstacle(name: str, taken: dict[str, PostgresTable], asked: Counter[str], has_room: bool) -> str:
    """The reason why a published table cannot have this name; empty if it can."""
    if _NAME.fullmatch(name) is None:
        return f"TableNameUnusable: {name!r} is no name for it here: name it in tables"
    if (other := taken.get(name)) is not None:
        return f"TableNameUsed: table {name} is {other.schema}.{other.table}: name it in tables"
    if asked[name] > 1:
        return f"TableNameUsed: {asked[name]} published tables would be table {name}: name them in tables"
    return "" if has_room else f"TooManyTables: a DataSource has at most {MAX_TABLES}"
