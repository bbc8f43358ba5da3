"""The depth to which calls of a text may stand in one another, decided by its tokens alone, before sqlglot parses it.

sqlglot reads `int(` as a type first, and as a call if that fails. So each parenthesis after the name of a type that
stands inside another one doubles the time of the parse: 40 of them would take years.
"""

from __future__ import annotations

import sqlglot
from sqlglot.tokens import Token, TokenType

from tidemark_planner.errors import position, refuse

MAX_TYPES = 8
"""Parentheses after names of types, in one another: 256 times the time of a parse."""


def check_nesting(sql: str, dialect: str) -> None:
    """Raises Refusal, at the name that is one too deep; sqlglot's TokenError where the text has no tokens."""
    types = sqlglot.Dialect.get_or_raise(dialect).parser_class.TYPE_TOKENS
    opened: list[bool] = []
    depth = 0
    before: Token | None = None
    for token in sqlglot.tokenize(sql, read=dialect):
        if token.token_type is TokenType.L_PAREN:
            opened.append(before is not None and before.token_type in types)
            depth += opened[-1]
            if before is not None and depth > MAX_TYPES:
                message = f"more than {MAX_TYPES} names of types are called in one another: write CAST(x AS type)"
                refuse("TOO_LARGE", message, *position(sql, before.start), before.text)
        elif token.token_type is TokenType.R_PAREN and opened:
            depth -= opened.pop()
        before = token
