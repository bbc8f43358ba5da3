"""The catalogue of one session: which statements are its own, and their answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from tidemark_pgwire.catalogue import sandbox
from tidemark_pgwire.catalogue.contents.entries import Contents
from tidemark_pgwire.catalogue.contents.lookups import lookup_of
from tidemark_pgwire.catalogue.contents.system_rows import rows_of
from tidemark_pgwire.catalogue.facts import CatalogueAnswer, Description, Relation, SessionFacts
from tidemark_pgwire.catalogue.oids import Oids
from tidemark_pgwire.catalogue.settings import setting
from tidemark_pgwire.catalogue.sql.functions import FUNCTIONS
from tidemark_pgwire.catalogue.sql.rewriting import Rewritten, rewritten
from tidemark_pgwire.catalogue.sql.statement import concerns_catalogue
from tidemark_pgwire.catalogue.types import SENT, VECTORS, element_of, oid_of, stored_as

_SHOW = re.compile(
    r"\s*SHOW\s+(?P<name>[\w.]+|TRANSACTION\s+ISOLATION\s+LEVEL|TIME\s+ZONE|SESSION\s+AUTHORIZATION)\s*;?\s*",
    re.IGNORECASE,
)


class Catalogue:
    """Of one session. The oid of a relation is the same as long as the session lasts."""

    def __init__(self, session: SessionFacts) -> None:
        self._session = session
        self._oids = Oids()

    def answers(self, statement: str) -> bool:
        """Whether the statement concerns the session or the catalogue alone, and no relation of a user."""
        return _SHOW.fullmatch(statement) is not None or concerns_catalogue(statement)

    async def describe(self, statement: str, relations: Sequence[Relation]) -> Description:
        """What the answer will be. Raises CatalogueError."""
        shown = _SHOW.fullmatch(statement)
        if shown is not None:
            name, _ = self._shown(shown["name"])
            return Description((), (name,), (oid_of("text"),))
        return await sandbox.run(lambda: self._describe(statement, relations))

    def _describe(self, statement: str, relations: Sequence[Relation]) -> Description:
        found = rewritten(statement, Contents(self._session, relations, self._oids), None)
        parameters = [oid_of(type) for _, type in sorted(found.parameters.items())]
        return Description(parameters, [name for name, _ in found.columns], [oid_of(t) for _, t in found.columns])

    async def answer(
        self, statement: str, parameters: Sequence[str | None], relations: Sequence[Relation]
    ) -> CatalogueAnswer:
        """`parameters`: the values of $1, $2 ... as texts. Raises CatalogueError."""
        shown = _SHOW.fullmatch(statement)
        if shown is not None:
            name, value = self._shown(shown["name"])
            return CatalogueAnswer(pa.table({name: [value]}), [oid_of("text")])
        return await sandbox.run(lambda: self._answer(statement, parameters, relations))

    def _answer(
        self, statement: str, parameters: Sequence[str | None], relations: Sequence[Relation]
    ) -> CatalogueAnswer:
        contents = Contents(self._session, relations, self._oids)
        found = rewritten(statement, contents, parameters)
        return _typed(sandbox.answer(_statement(found, contents)), found)

    def _shown(self, name: str) -> tuple[str, str]:
        """The name of a setting, as its column has it, and its value."""
        folded = "_".join(name.lower().split())
        if folded == "session_authorization":
            return folded, self._session.user
        value = setting(self._session, folded)
        return {"time_zone": "TimeZone", "transaction_isolation_level": "transaction_isolation"}.get(
            folded, folded
        ), value


def _statement(found: Rewritten, contents: Contents) -> sandbox.Statement:
    lookups = sorted({name for function in found.functions for name in FUNCTIONS[function].lookups})
    macros = [
        f'CREATE MACRO "fn.{name}" {", ".join(FUNCTIONS[name].bodies)}'
        for name in sorted(found.functions)
        if FUNCTIONS[name].bodies
    ]
    tables = {
        relation.stored_name: (
            [(column.name, stored_as(column.type)) for column in relation.columns],
            rows_of(relation, contents),
        )
        for relation in found.relations
    }
    return sandbox.Statement(found.sql, tables, {name: lookup_of(name, contents) for name in lookups}, macros)


def _typed(rows: pa.Table, found: Rewritten) -> CatalogueAnswer:
    """The rows with PostgreSQL's names and types."""
    columns = [_column(rows.column(n), type) for n, (_, type) in enumerate(found.columns)]
    names = [name for name, _ in found.columns]
    return CatalogueAnswer(pa.Table.from_arrays(columns, names=names), [oid_of(type) for _, type in found.columns])


def _column(values: pa.ChunkedArray, type: str) -> pa.ChunkedArray:
    if type in VECTORS and pa.types.is_list(values.type):
        texts = [None if one is None else " ".join(map(str, one)) for one in values.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_list(values.type) and element_of(type) not in SENT:
        return pa.chunked_array([pa.array(map(_array_text, values.to_pylist()), pa.string())])
    sent = type in SENT or pa.types.is_list(values.type)
    return values if sent and not pa.types.is_null(values.type) else values.cast(pa.string())


def _array_text(items: Sequence[object] | None) -> str | None:
    """As PostgreSQL prints an array of one dimension."""
    if items is None:
        return None
    escaped = [str(item).replace("\\", "\\\\").replace('"', '\\"') for item in items]
    return "{" + ",".join("NULL" if i is None else f'"{text}"' for i, text in zip(items, escaped, strict=True)) + "}"
