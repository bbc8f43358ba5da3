"""Statements as sqlglot reads them, and whether they are the catalogue's.

A statement is the catalogue's if it names no relation but those of pg_catalog and information_schema, and calls what is
about them or the session. A SELECT without any relation is so if it consists of literals and such calls alone: what
computes is the gateway's to answer.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from tidemark_pgwire.catalogue.facts import CatalogueError
from tidemark_pgwire.catalogue.sql.functions import FUNCTIONS, name_of
from tidemark_pgwire.catalogue.sql.session_functions import SESSION_FUNCTIONS
from tidemark_pgwire.catalogue.system_relations import INFORMATION_SCHEMA, PG_CATALOG, find, table_functions
from tidemark_pgwire.catalogue.types import resolved

TEXT_MAX = 32_768
"""Characters of a statement. The longest of a client's that we know has 9,000."""
PARSED_MAX = 2_000
"""Characters of a statement that the event loop may parse, and whose tree is kept for a while."""
_SYSTEM_WORD = re.compile(r"\bpg_|\binformation_schema\b", re.IGNORECASE)
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)
_SYSTEM_SCHEMAS = (PG_CATALOG, INFORMATION_SCHEMA)
_LITERALS = (exp.Null, exp.Boolean, exp.ByteString)
_AROUND_LITERALS = (
    exp.Select, exp.Alias, exp.Identifier, exp.Paren, exp.DataType, exp.ObjectIdentifier, exp.Dot, exp.Is, exp.Not,
    exp.And, exp.Or, exp.EQ, exp.NEQ,
)  # fmt: skip
_CAST_TO = frozenset("text varchar name int4 int8 int2 bool oid regclass regtype regnamespace regrole".split())
_NUMBER = re.compile(r"\d{1,9}")
_UNREADABLE = re.compile(r"\[\s*\]|\bas\s+(select|update|insert|delete)\b", re.IGNORECASE)
_TYPES_WITHOUT_ARRAYS = ("oid", "name", "regclass", "regtype")
_VERBS = (TokenType.SELECT, TokenType.UPDATE, TokenType.INSERT, TokenType.DELETE)
_AFTER_NAMES = (TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.SEMICOLON)
_READ = re.compile(rf"\b(?:from|join)\s+\(*\s*((?:{PG_CATALOG}|{INFORMATION_SCHEMA})\s*\.\s*)?(\w+)", re.IGNORECASE)
_DIALECT = "postgres"
logging.getLogger("sqlglot").disabled = True  # it would log statements


def _parsed(text: str) -> exp.Expression | str:
    """The tree, which is not to be changed; or why there is none."""
    return _kept(text) if len(text) <= PARSED_MAX else _read_text(text)


@lru_cache(maxsize=32)
def _kept(text: str) -> exp.Expression | str:
    """A statement is parsed once for `concerns_catalogue` and for its answer."""
    return _read_text(text)


def _read_text(text: str) -> exp.Expression | str:
    try:
        found = [one for one in sqlglot.parse(_readable(text), dialect=_DIALECT) if one is not None]
    except (SqlglotError, RecursionError, ValueError) as error:
        return str(error).split("\n")[0][:200] or type(error).__name__
    if len(found) != 1:
        return f"{len(found)} statements where one is read"
    return found[0]


def _readable(text: str) -> str:
    """What PostgreSQL reads and sqlglot does not, in other words: `oid[]`, and keywords as names after AS."""
    if not _UNREADABLE.search(text):
        return text
    tokens = [*sqlglot.tokenize(text, dialect=_DIALECT), None, None]
    for first, second, third in reversed(list(zip(tokens, tokens[1:], tokens[2:], strict=False))):
        if first is None or second is None:
            continue
        third_type = third.token_type if third else TokenType.SEMICOLON
        array = second.token_type is TokenType.L_BRACKET and third_type is TokenType.R_BRACKET
        qualified = text[: first.start].rstrip().endswith(".")
        if array and first.text.lower() in _TYPES_WITHOUT_ARRAYS and not qualified:
            text = f"{text[: first.start]}pg_catalog.{text[first.start :]}"
        elif first.token_type is TokenType.ALIAS and second.token_type in _VERBS and third_type in _AFTER_NAMES:
            text = f'{text[: second.start]}"{second.text.lower()}"{text[second.end + 1 :]}'
    return text


def parse(text: str) -> exp.Query:
    """A new tree. Raises CatalogueError: it is no query that the catalogue reads."""
    if len(text) > TEXT_MAX:
        raise CatalogueError("54000", f"a statement about the catalogue has at most {TEXT_MAX} characters")
    found = _parsed(text)
    if isinstance(found, str):
        raise CatalogueError("42601", f"syntax error, or a construct that the catalogue does not know: {found}")
    if not isinstance(found, exp.Query):
        raise CatalogueError("0A000", "of the catalogue, SELECT and SHOW alone can be asked")
    copied: exp.Query = found.copy()
    return copied


def concerns_catalogue(text: str) -> bool:
    """Cheap, as the event loop asks it of each statement: a long one is not parsed for it."""
    if len(text) > TEXT_MAX or (_FROM.search(text) and not _SYSTEM_WORD.search(text)):
        return False
    if len(text) > PARSED_MAX:
        return any(name[1] or find("", name[2].lower()) for name in _READ.finditer(text))
    found = _parsed(text)
    if isinstance(found, str):
        return bool(re.search(rf"\b({PG_CATALOG}|{INFORMATION_SCHEMA})\s*\.", text, re.IGNORECASE))
    if not isinstance(found, exp.Query):
        return False
    tables = [table for table in found.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    if tables:
        return any(is_system(table) for table in tables)
    called = {name_of(call) for call in found.find_all(exp.Func)}
    return not called.isdisjoint(FUNCTIONS.keys() | table_functions().keys()) or _is_of_session(found)


def is_system(table: exp.Table) -> bool:
    """Whether it is a relation of a system schema, there or not."""
    schema = table.db.lower()
    return schema in _SYSTEM_SCHEMAS or (not schema and find("", table.name.lower()) is not None)


def _is_of_session(tree: exp.Expression) -> bool:
    """Whether it is made of literals and of calls about the session alone."""
    calls = any(name_of(call) in SESSION_FUNCTIONS for call in tree.find_all(exp.Func))
    for node in tree.walk():
        known = isinstance(node, (*_LITERALS, *_AROUND_LITERALS))
        if isinstance(node, exp.Literal):
            known = node.is_string or _NUMBER.fullmatch(node.name) is not None
        if isinstance(node, exp.Div):
            known = calls
        if isinstance(node, exp.Parameter):
            known = isinstance(node.parent, exp.Func)
        if isinstance(node, exp.Cast):
            known = resolved(node.to.sql("postgres").lower()) in _CAST_TO
        called = isinstance(node, exp.Func) and name_of(node) in SESSION_FUNCTIONS
        named = isinstance(node, exp.Column) and node.name.lower() in ("user", "current_role") and not node.table
        if not (known or called or named):
            return False
    return True
