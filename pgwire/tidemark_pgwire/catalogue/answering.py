"""Answers one question about the catalogue: a statement, with the facts of its session.

Question ──► rewritten for DuckDB ──► sandbox ──► CatalogueReply: a description or rows, new oids, changed settings
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemark_pgwire.catalogue import sandbox
from tidemark_pgwire.catalogue.contents.entries import CatalogueContents
from tidemark_pgwire.catalogue.contents.lookups import lookup_of
from tidemark_pgwire.catalogue.contents.system_rows import rows_of
from tidemark_pgwire.catalogue.facts import AnswerDescription, CatalogueAnswer, CatalogueRelation, SessionFacts
from tidemark_pgwire.catalogue.oids import Oids
from tidemark_pgwire.catalogue.sql.functions import FUNCTIONS
from tidemark_pgwire.catalogue.sql.rewriting import Rewritten, rewritten
from tidemark_pgwire.catalogue.types import SENT, element_of, oid_of, stored_as
from tidemark_pgwire.values.types import VECTORS


@dataclass(frozen=True)
class Question:
    """`values`: of the parameters; None: the answer is described alone. `oids`: by name, the oids that
    earlier statements of the session named."""

    text: str
    values: Sequence[str | None] | None
    session: SessionFacts
    relations: Sequence[CatalogueRelation]
    oids: Mapping[tuple[str, ...], int]


@dataclass(frozen=True)
class CatalogueReply:
    """`oids`: by name, the oids that no earlier statement named. `settings`: the new values of changed settings."""

    found: CatalogueAnswer | AnswerDescription
    oids: Mapping[tuple[str, ...], int]
    settings: Mapping[str, str]


def reply_to(question: Question) -> CatalogueReply:
    """Raises CatalogueError."""
    oids, before = Oids(question.oids), dict(question.session.parameters)
    contents = CatalogueContents(question.session, question.relations, oids)
    found = rewritten(question.text, contents, question.values)
    answer = describe(found) if question.values is None else typed(sandbox.answer(statement_of(found, contents)), found)
    settings = {name: value for name, value in question.session.parameters.items() if before.get(name) != value}
    return CatalogueReply(answer, oids.new(), settings)


def describe(found: Rewritten) -> AnswerDescription:
    parameters = [oid_of(type) for _, type in sorted(found.parameters.items())]
    return AnswerDescription(parameters, [name for name, _ in found.columns], [oid_of(t) for _, t in found.columns])


def statement_of(found: Rewritten, contents: CatalogueContents) -> sandbox.SandboxStatement:
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
    return sandbox.SandboxStatement(found.sql, tables, {name: lookup_of(name, contents) for name in lookups}, macros)


def typed(rows: pa.Table, found: Rewritten) -> CatalogueAnswer:
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
    """The text by which PostgreSQL prints an array of one dimension."""
    if items is None:
        return None
    escaped = [str(item).replace("\\", "\\\\").replace('"', '\\"') for item in items]
    return "{" + ",".join("NULL" if i is None else f'"{text}"' for i, text in zip(items, escaped, strict=True)) + "}"
