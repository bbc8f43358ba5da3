"""Statements as sqlglot reads them. `statements/subjects` decides which are the catalogue's."""

from __future__ import annotations

import logging
import re
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from tidemark_pgwire.catalogue.facts import CatalogueError

TEXT_MAX = 32_768
"""Characters of a statement. The longest of a client's that we know has 9,000."""
PARSED_MAX = 2_000
"""Characters of a statement whose tree is kept for a while."""
_DEPTH_MAX, _TYPES_MAX = 100, 4
"""The depth to which parentheses may stand in one another, and the number that may follow the name of a type: each of
those doubles the time of sqlglot, which reads it as a type first and then as a call."""
_UNREADABLE = re.compile(r"\[\s*\]|\bas\s+(select|update|insert|delete)\b", re.IGNORECASE)
_TYPES_WITHOUT_ARRAYS = ("oid", "name", "regclass", "regtype")
_VERBS = (TokenType.SELECT, TokenType.UPDATE, TokenType.INSERT, TokenType.DELETE)
_AFTER_NAMES = (TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.SEMICOLON)
_DIALECT = "postgres"
_TYPE_TOKENS = sqlglot.Dialect.get_or_raise(_DIALECT).parser_class.TYPE_TOKENS
logging.getLogger("sqlglot").disabled = True  # it would log statements


def _parsed(text: str) -> exp.Expression | str:
    """The tree, which is not to be changed; or why there is none."""
    return _kept(text) if len(text) <= PARSED_MAX else _read_text(text)


def _read_text(text: str) -> exp.Expression | str:
    try:
        text = _readable(text)
        if _is_deep(text):
            return "parentheses are too deep in one another"
        found = [one for one in sqlglot.parse(text, dialect=_DIALECT) if one is not None]
    except (SqlglotError, RecursionError, ValueError) as error:
        return str(error).split("\n")[0][:200] or type(error).__name__
    if len(found) != 1:
        return f"{len(found)} statements where one is read"
    return found[0]


_kept = lru_cache(maxsize=32)(_read_text)
"""`_read_text` with its newest results kept: most statements are described, and then answered."""


def _is_deep(text: str) -> bool:
    """Whether the parser could take long for it."""
    opened: list[bool] = []
    before = None
    for token in sqlglot.tokenize(text, dialect=_DIALECT):
        if token.token_type is TokenType.L_PAREN:
            opened.append(before in _TYPE_TOKENS)
            if len(opened) > _DEPTH_MAX or sum(opened) > _TYPES_MAX:
                return True
        elif token.token_type is TokenType.R_PAREN and opened:
            opened.pop()
        before = token.token_type
    return False


def _readable(text: str) -> str:
    """The text, with `oid[]` and keywords as names after AS written so that sqlglot reads them, too."""
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
