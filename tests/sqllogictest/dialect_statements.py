"""Statements in another engine's dialect: parsed as they are; only parts that Spark evaluates are translated.

CREATE TABLE and VALUES of plain literals say the same everywhere; queries, conditions and defaults do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.sqllogictest.lexer import Token, divided, enclosed, split_statements, tokens
from tests.sqllogictest.parse_statement import parse_statement
from tests.sqllogictest.statements import CreateTable, CreateView, Insert, Nothing, Parsed
from tidemark_protocol.types import BIGINT, Column

if TYPE_CHECKING:
    from tests.sqllogictest.dialects import Translator
    from tidemark_planner.dialects.number_kinds import Tables

_EIGHT_BYTES = ("sqlite",)
_VALUES = {"postgres": "column{1}", "duckdb": "col{0}", "sqlite": "column{1}"}
_CHANGES = ("UPDATE", "DELETE")
_PLAIN_WORDS = ("NULL", "TRUE", "FALSE", "DEFAULT", "(", ")", ",", "-", "+")


def statements_of(sql: str) -> list[str]:
    """The statements of a record: mostly one."""
    return split_statements(sql) if ";" in sql else [sql]


def spoken(sql: str, translate: Translator, tables: Tables) -> Parsed:
    """The statement, its inside as Spark's SQL; raises NotOurs and NotTranslated."""
    if not translate.is_foreign:
        return parse_statement(sql)
    if sql[:6].upper() in _CHANGES:
        return parse_statement(translate(sql, tables))
    match parse_statement(sql):
        case CreateTable() as table:
            query = translate(_named(table.query, translate.dialect), tables) if table.query else ""
            defaults = tuple((i, _expression(text, translate, tables)) for i, text in table.defaults)
            columns = tuple(_widened(c, translate.dialect) for c in table.columns)
            return replace(table, query=query, defaults=defaults, columns=columns)
        case CreateView() as view:
            return replace(view, query=translate(_named(view.query, translate.dialect), tables))
        case Insert() as insert:
            plain = _is_plain(insert.source)
            return insert if plain else replace(insert, source=translate(insert.source, tables))
        case Nothing() as nothing:
            translate.setting(sql)
            return nothing
        case other:
            return other


def _named(query: str, dialect: str) -> str:
    """VALUES with the names that an engine gives to their columns, which are not Spark's."""
    found = tokens(query)
    if dialect not in _VALUES or not found or found[0].upper != "VALUES":
        return query
    width = len(list(divided(found[2 : enclosed(found, 1) - 1])))
    names = ", ".join(_VALUES[dialect].format(i, i + 1) for i in range(width))
    return f"SELECT * FROM ({query}) AS v({names})"


def _expression(text: str, translate: Translator, tables: Tables) -> str:
    return translate(f"SELECT {text}", tables).removeprefix("SELECT ")


def _widened(column: Column, dialect: str) -> Column:
    """Integers of any name have eight bytes in some engines."""
    return replace(column, type=BIGINT) if dialect in _EIGHT_BYTES and column.type.is_integral else column


def _is_plain(source: str) -> bool:
    """Whether these are VALUES of literals that are the same in every engine."""
    found = iter(tokens(source))
    first = next(found, None)
    return first is not None and first.upper == "VALUES" and all(_plain(found))


def _plain(found: Iterator[Token]) -> Iterator[bool]:
    for token in found:
        text = token.text
        if token.kind == "string":
            yield "\\" not in text and "'" not in text[1:-1]
        else:
            yield token.kind == "number" or token.upper in _PLAIN_WORDS
