"""The user's relations as a catalogue has them: with oids, schemas, types of their rows, indexes and constraints.

CatalogueRelation ──► RelationEntry ──┬──► its key of a table: an index and a constraint
                                      ├──► its other keys: unique indexes
                                      └──► the columns of an index of the replicas: an index
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files

from tidemark_pgwire.catalogue.facts import CatalogueRelation, SessionFacts
from tidemark_pgwire.catalogue.oids import Oids
from tidemark_pgwire.catalogue.settings import settings_of
from tidemark_pgwire.catalogue.system_relations import INFORMATION_SCHEMA, PG_CATALOG, system_relations
from tidemark_pgwire.values.system_types import system_types

SCHEMA_OIDS: Mapping[str, int] = {PG_CATALOG: 11, "public": 2200, INFORMATION_SCHEMA: 13_207}
OWNER, OWNER_OID = "tidemark", 10
"""The role that everything belongs to."""
_KINDS = {"table": "r", "materialized view": "m", "view": "v"}


@dataclass(frozen=True)
class Index:
    """`columns`: numbers of the columns of its relation, from 1."""

    oid: int
    name: str
    columns: tuple[int, ...]
    unique: bool
    primary: bool
    constraint: int


@dataclass(frozen=True)
class RelationEntry:
    """`type`, `array`: the oids of the type of its rows, and of their arrays. `visible`: its name alone means it."""

    relation: CatalogueRelation
    oid: int
    schema: int
    type: int
    array: int
    visible: bool
    indexes: tuple[Index, ...]

    @property
    def kind(self) -> str:
        return _KINDS.get(self.relation.kind, "r")

    @property
    def name(self) -> str:
        return self.relation.name

    @property
    def full_name(self) -> str:
        """The name in SQL, with the namespace."""
        return f"{quoted(self.relation.namespace)}.{quoted(self.name)}"

    @property
    def shown_name(self) -> str:
        """The name that `oid::regclass` prints: the shortest name that SQL takes."""
        return self.qualified_name(self.name)

    def qualified_name(self, name: str) -> str:
        """A name of the relation's schema, quoted, with the schema where the search path does not have it."""
        alone = self.relation.namespace == "public" or _is_short(self.relation)
        return quoted(name) if alone else f"{quoted(self.relation.namespace)}.{quoted(name)}"

    def column_names(self, index: Index) -> list[str]:
        return [self.relation.columns[number - 1].name for number in index.columns]


class CatalogueContents:
    """The contents of the catalogue for one answer."""

    def __init__(self, session: SessionFacts, relations: Sequence[CatalogueRelation], oids: Oids) -> None:
        self.session, self.oids = session, oids
        self.settings = settings_of(session)
        self.database_oid = oids.of("database", session.database)
        self.user_oid = OWNER_OID if session.user == OWNER else oids.of("role", session.user)
        self._relations = relations

    @cached_property
    def schemas(self) -> Mapping[str, int]:
        """Oids by name."""
        ours = sorted({r.namespace for r in self._relations} - set(SCHEMA_OIDS))
        return {**SCHEMA_OIDS, **{name: self.oids.of("schema", name) for name in ours}}

    @cached_property
    def entries(self) -> Sequence[RelationEntry]:
        counts = Counter(one.name for one in self._relations)
        alone = {name for name, count in counts.items() if count == 1}
        alone -= {name for schema, name in system_relations() if schema == PG_CATALOG}
        alone -= {one.namespace for one in self._relations if one.short and not _is_short(one)}  # SQL means these by it
        return [self._entry(one, one.name in alone or _is_short(one)) for one in self._relations]

    def _entry(self, one: CatalogueRelation, visible: bool) -> RelationEntry:
        def oid(kind: str) -> int:
            return self.oids.of(kind, one.namespace, one.name)

        indexes = self._indexes(one)
        schema = self.schemas[one.namespace]
        key = {number for index in indexes if index.primary for number in index.columns}
        columns = tuple(replace(c, nullable=c.nullable and at not in key) for at, c in enumerate(one.columns, 1))
        one = replace(one, columns=columns)  # PostgreSQL's primary keys have no NULL, and pgjdbc asks for that
        return RelationEntry(one, oid("relation"), schema, oid("type"), oid("array"), visible, indexes)

    def _indexes(self, one: CatalogueRelation) -> tuple[Index, ...]:
        numbers = {column.name: number for number, column in enumerate(one.columns, 1)}
        found: list[Index] = []

        def add(suffix: str, columns: tuple[str, ...], unique: bool, primary: bool) -> None:
            if not columns or not set(columns) <= set(numbers):
                return
            name = f"{one.name}_{suffix}"
            oid = self.oids.of("relation", one.namespace, name, "index")
            constraint = self.oids.of("constraint", one.namespace, name) if primary else 0
            found.append(Index(oid, name, tuple(numbers[c] for c in columns), unique, primary, constraint))

        for number, key in enumerate(one.keys):
            if number == 0 and one.kind == "table":
                add("pkey", key, True, True)
            else:
                add(f"key{number or ''}", key, True, False)
        add("idx", one.index_key, False, False)
        return tuple(found)

    def index_definition(self, entry: RelationEntry, index: Index, name: str) -> str:
        """`name`: of the relation, as it is to stand there."""
        unique = "UNIQUE " if index.unique else ""
        columns = ", ".join(map(quoted, entry.column_names(index)))
        return f"CREATE {unique}INDEX {quoted(index.name)} ON {name} USING btree ({columns})"

    def constraint_definition(self, entry: RelationEntry, index: Index) -> str:
        return f"PRIMARY KEY ({', '.join(map(quoted, entry.column_names(index)))})"

    @cached_property
    def indexes(self) -> Sequence[tuple[RelationEntry, Index]]:
        """All indexes, each with its relation."""
        return [(entry, index) for entry in self.entries for index in entry.indexes]

    @property
    def keys(self) -> Sequence[tuple[RelationEntry, Index]]:
        """The indexes that have a constraint: primary keys."""
        return [(entry, index) for entry, index in self.indexes if index.constraint]

    @cached_property
    def roles(self) -> Mapping[int, str]:
        return {OWNER_OID: OWNER, self.user_oid: self.session.user}

    @cached_property
    def rights(self) -> list[str]:
        """The access list of each relation: its owner's, and the user's, who reads."""
        user = self.session.user
        plain = user.isascii() and user.replace("_", "a").isalnum()
        shown = user if plain else '"' + user.replace('"', '""') + '"'
        return [f"{OWNER}=arwdDxt/{OWNER}", f"{shown}=r/{OWNER}"]

    @cached_property
    def functions(self) -> Mapping[int, str]:
        """The names of the functions that types have for their input and output, by oid."""
        return {oid: name for one in system_types().values() for oid, name in one.functions if oid}


def _is_short(one: CatalogueRelation) -> bool:
    return one.short and one.namespace == one.name


def quoted(name: str) -> str:
    """A name as SQL needs it: in quotes unless it is plain, in lower case, and no keyword."""
    plain = name.isascii() and name.replace("_", "a").isalnum() and name == name.lower() and not name[0].isdigit()
    return name if plain and name not in RESERVED else '"' + name.replace('"', '""') + '"'


_PART = re.compile(r'\s*+(?:"((?:[^"]|"")+)"|([^".\s]++))\s*+(\.|\Z)')


def parts_of_name(text: str) -> list[str]:
    """The parts of a name with its schemas: in lower case unless in quotes. Empty: the text is no name."""
    parts, at = list[str](), 0
    while (found := _PART.match(text, at)) is not None:
        parts.append(found[1].replace('""', '"') if found[1] else found[2].lower())
        if not found[3]:
            return parts
        at = found.end()
    return []


KEYWORDS: Mapping[str, Sequence[str]] = {
    code: words.split()
    for code, words in (
        line.split("\t")
        for line in files("tidemark_pgwire.catalogue").joinpath("system_keywords.tsv").read_text().splitlines()
    )
}
"""PostgreSQL's keywords by kind: R reserved, T and C for functions, types or columns, U names like any."""
RESERVED = frozenset(word for code, words in KEYWORDS.items() for word in words if code != "U")
"""Words that PostgreSQL takes for names in quotes alone."""
