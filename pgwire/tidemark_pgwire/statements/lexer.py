"""The tokens of SQL: enough to divide statements at `;`, and to find parameters, by the rules of each dialect.

    SELECT ';' AS a; SELECT $1 -- $2; not     ──►  SELECT ';' AS a   |   SELECT $1 -- $2; not

PostgreSQL: texts '...' with doubled quotes, E'...' with backslashes, $tag$...$tag$; names "..."; comments within
comments. Spark: texts '...' and "..." with backslashes, r'...' without; names `...`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tidemark_pgwire.errors import LIMIT_EXCEEDED, SYNTAX_ERROR, WireError

POSTGRES, SPARK = "postgres", "spark"
MAX_CHARACTERS = 128 << 10
"""The limit for the text of a message: the gateway takes no longer statements."""
_NUMBER = r"(?P<number> \d[\w.]* | \.\d[\w.]* )"
_POSTGRES = re.compile(
    rf"""
    (?P<blank> \s+ | --[^\r\n]* )
    | (?P<comment> /\* )
    | (?P<text> [eE]'(?:[^'\\]|\\.|'')*' | (?:[uU]&|[bBxXnN])?'(?:[^']|'')*' )
    | (?P<name> (?:[uU]&)?"(?:[^"]|"")*" )
    | (?P<parameter> \$[0-9]+ )
    | (?P<dollar> \$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?\$ )
    | (?P<unended> [eEbBxXnN]' | [uU]&['"] )          # or the letter would be a word, and the text a plain one
    | (?P<word> [A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]* )
    | {_NUMBER}
    | (?P<open> ['"] )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_SPARK = re.compile(
    r"""
    (?P<blank> \s+ | --(?:\\\n|[^\r\n])* )
    | (?P<comment> /\* )
    | (?P<text> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<name> `(?:[^`]|``)*` )
    | (?P<parameter> \$[0-9]+ )
    | (?P<unended> [rR]['"] )
    | (?P<word> \w+ )
    | (?P<open> ['"`] )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN = frozenset(("text", "name", "parameter", "word", "number", "mark"))
"""Kinds of tokens that the rules find as a whole."""
_RULES = {POSTGRES: _POSTGRES, SPARK: _SPARK}
_COMMENT_MARK = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    """`kind`: blank (also a comment), text, name, parameter, word, number or mark. `at`: of its first character."""

    kind: str
    text: str
    at: int

    @property
    def end(self) -> int:
        return self.at + len(self.text)

    @property
    def word(self) -> str:
        """The word in upper case; empty where the token is none."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def identifier(self) -> str:
        """The name that it is: a word in lower case, or what is between quotes."""
        if self.kind == "name":
            quote = self.text[-1]
            return self.text[1:-1].replace(quote * 2, quote)
        return self.text.lower()

    @property
    def value(self) -> str:
        """The value of a plain text."""
        return self.text[1:-1].replace("''", "'")


_token: Callable[..., Token] = tuple.__new__
"""Makes a Token of its fields in half the time that `Token(...)` takes: a long statement has tens of thousands."""


@dataclass(frozen=True)
class Statement:
    """One of a text. `at`: where it begins there. `tokens`: without blanks and comments; they count from its own
    beginning."""

    sql: str
    at: int
    dialect: str
    tokens: list[Token]


def significant(sql: str, dialect: str) -> list[Token]:
    """The tokens without blanks and comments. Raises WireError where a text, name or comment does not end."""
    rules, at, made = _RULES[dialect], 0, list[Token]()
    while at < len(sql):
        for found in rules.finditer(sql, at):
            kind = found.lastgroup
            if kind in _PLAIN:
                made.append(_token(Token, (kind, found[0], found.start())))
            elif kind != "blank":
                at = _end_of(kind, found, sql)
                if kind == "dollar":
                    made.append(Token("text", sql[found.start() : at], found.start()))
                break
        else:
            break
    return made


def _end_of(kind: str | None, found: re.Match[str], sql: str) -> int:
    """The end of a comment or a text that the rules find the beginning of. Raises WireError."""
    at = found.start()
    if kind == "comment":
        return _end_of_comment(sql, at)
    if kind == "dollar":
        end = sql.find(found[0], found.end())
        if end < 0:
            raise WireError(SYNTAX_ERROR, "unterminated dollar-quoted string", position=at + 1)
        return end + len(found[0])
    raise WireError(SYNTAX_ERROR, f"unterminated quoted string at or near {sql[at : at + 20]!r}", position=at + 1)


def split(sql: str, dialect: str) -> list[Statement]:
    """The statements, without their `;`; empty ones are left out. Raises as `tokens`, and where the text is too long
    to be looked at."""
    if len(sql) > MAX_CHARACTERS:
        raise WireError(
            LIMIT_EXCEEDED,
            f"the statement has {len(sql)} characters, and at most {MAX_CHARACTERS} are taken",
            hint="Send long values as parameters.",
        )
    every = significant(sql, dialect)
    ends = [at for at, (_, text, _) in enumerate(every) if text == ";"]
    found, start, first = list[Statement](), 0, 0
    for end in [*ends, len(every)]:
        until = every[end].at if end < len(every) else len(sql)
        if own := every[first:end]:
            own = [token._replace(at=token.at - start) for token in own] if start else own
            found.append(Statement(sql[start:until], start, dialect, own))
        start, first = until + 1, end + 1
    return found


def _end_of_comment(sql: str, at: int) -> int:
    depth = 0
    for mark in _COMMENT_MARK.finditer(sql, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise WireError(SYNTAX_ERROR, "unterminated /* comment", position=at + 1)
