"""Relations of a user, the same ones for PostgreSQL, and what both answer to a statement."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.dialects.postgres import Postgres, running
from tidemark_pgwire.catalogue.facts import CatalogueAnswer, CatalogueRelation, SessionFacts
from tidemark_pgwire.catalogue.session_catalogue import Catalogue
from tidemark_pgwire.session.settings import SessionSettings
from tidemark_pgwire.statements.lexer import POSTGRES
from tidemark_pgwire.statements.subjects import StatementSubject, subject_of
from tidemark_protocol.types import Column, SqlType

DATABASE, USER, OWNER = "shop", "reader", "tidemark"
FIRST_OF_USERS = 16_384


def column(name: str, type: str, nullable: bool = True) -> Column:
    return Column(name, SqlType.parse(type), nullable)


RELATIONS = (
    CatalogueRelation(
        "public",
        "orders",
        "table",
        (
            column("id", "int", False),
            column("part", "string", False),
            column("amount", "decimal(15,2)"),
            column("at", "timestamp"),
            column("seen", "timestamp_ntz"),
            column("ok", "boolean"),
            column("raw", "binary"),
            column("tags", "array<string>"),
            column("prices", "array<decimal(9,3)>"),
            column("day", "date"),
            column("big", "bigint"),
            column("small", "smallint"),
            column("f", "float"),
            column("d", "double"),
            column("Odd name", "struct<a:int>"),
        ),
        keys=(("id", "part"),),
    ),
    CatalogueRelation("public", "recent", "view", (column("id", "int"), column("part", "string"))),
    CatalogueRelation(
        "public",
        "totals",
        "materialized view",
        (column("part", "string"), column("total", "decimal(25,2)"), column("n", "bigint")),
        keys=(("part",),),
        index_key=("n",),
    ),
)
SCHEMA = """
create table orders (
    id int, part text not null, amount numeric(15,2), at timestamptz, seen timestamp, ok boolean, raw bytea,
    tags text[], prices numeric(9,3)[], day date, big bigint, small smallint, f real, d double precision,
    "Odd name" json, primary key (id, part)
);
create view recent as select id, part from orders;
create materialized view totals as
    select part, sum(amount)::numeric(25,2) as total, count(*) as n from orders group by part;
create unique index totals_key on totals (part);
create index totals_idx on totals (n);
grant select on orders, recent, totals to reader;
"""


def session(user: str = USER, database: str = DATABASE, **parameters: str) -> SessionFacts:
    settings = SessionSettings(user, {}).values
    settings.update(parameters)
    return SessionFacts(user, database, 77, "127.0.0.1:40000", settings)


def ask(
    catalogue: Catalogue, sql: str, *values: str | None, relations: Sequence[CatalogueRelation] = RELATIONS
) -> CatalogueAnswer:
    assert subject_of(sql, POSTGRES) is not StatementSubject.ROWS, sql
    return asyncio.run(catalogue.answer(sql, values, relations))


def rows(
    catalogue: Catalogue, sql: str, *values: str | None, relations: Sequence[CatalogueRelation] = RELATIONS
) -> list[Any]:
    """Tuples; of one column, its values."""
    table = ask(catalogue, sql, *values, relations=relations).rows
    listed = [tuple(row.values()) for row in table.to_pylist()] if len(set(table.column_names)) > 1 else []
    return listed or [value for column in table.columns for value in column.to_pylist()]


@dataclass(frozen=True)
class Answered:
    """`names`, `types`: of the columns. `rows`: sorted, as texts, with names in the place of oids."""

    names: Sequence[str]
    types: Sequence[int]
    rows: Sequence[str]


class Oracle:
    """A PostgreSQL with the same relations, and a catalogue of ours beside it."""

    def __init__(self, server: Postgres) -> None:
        self.connection = psycopg.connect(
            host=str(server.folder), port=server.port, user=USER, dbname=DATABASE, autocommit=True
        )
        self.version = self.connection.info.server_version // 10_000
        self.catalogue = Catalogue(session(server_version=f"{self.version}.0"))
        ask_oids = "select relname, oid, reltype from pg_catalog.pg_class where relnamespace = 2200 or relname = 'none'"
        theirs = self.connection.execute(ask_oids).fetchall()
        ours = rows(self.catalogue, ask_oids)
        self._theirs: Mapping[str, Sequence[int]] = {name: oids for name, *oids in theirs}
        self._ours: Mapping[str, Sequence[int]] = {name: oids for name, *oids in ours}
        self._names = {
            str(oid): f"<{'type ' if place else ''}{name}>"
            for found in (self._theirs, self._ours)
            for name, oids in found.items()
            for place, oid in enumerate(oids)
            if oid
        }

    def close(self) -> None:
        self.connection.close()

    def theirs(self, sql: str, *values: str | None) -> Answered:
        """The rows of PostgreSQL. Raises psycopg.Error."""
        cursor = psycopg.RawCursor(self.connection)
        cursor.execute(sql, values or None)
        described = cursor.description or ()
        found = [self._shown(row) for row in cursor.fetchall()]
        return Answered([c.name for c in described], [c.type_code for c in described], sorted(found))

    def ours(self, sql: str, *values: str | None) -> Answered:
        """The rows of the catalogue. Oids of PostgreSQL in the statement are replaced by those of the same names."""
        answer = ask(self.catalogue, self._translated(sql), *(v and self._translated(v) for v in values))
        columns = [column.to_pylist() for column in answer.rows.columns]
        found = [self._shown([column[n] for column in columns]) for n in range(answer.rows.num_rows)]
        return Answered(answer.rows.column_names, list(answer.oids), sorted(found))

    def _translated(self, text: str) -> str:
        for name, oids in self._theirs.items():
            for their, our in zip(oids, self._ours.get(name, ()), strict=False):
                text = text.replace(f"'{their}'", f"'{our}'") if their else text
                text = str(our) if text == str(their) else text
        return text

    def _shown(self, row: Sequence[Any]) -> str:
        return repr([self._value(value) for value in row])

    def _value(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._value(each) for each in value]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float) and value == int(value):
            return str(int(value))
        text = str(value)
        if text in self._names:
            return self._names[text]
        return "<oid>" if text.isdigit() and int(text) >= FIRST_OF_USERS else text


@contextmanager
def oracle() -> Iterator[tuple[Oracle, Postgres]]:
    """The owner of everything has the name that it has in the catalogue."""
    with running() as server:
        server.rows("create role boss superuser login")
        server.rows(f"create role {USER} login")
        with _connected(server, "boss", "postgres") as boss:
            boss.execute(f"alter role test rename to {OWNER}")
            boss.execute(f"create database {DATABASE} owner {OWNER}")
        with _connected(server, OWNER, DATABASE) as owner:
            owner.execute("drop role boss")
            owner.execute(SCHEMA)
        found = Oracle(server)
        try:
            yield found, server
        finally:
            found.close()


def _connected(server: Postgres, user: str, database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(host=str(server.folder), port=server.port, user=user, dbname=database, autocommit=True)
