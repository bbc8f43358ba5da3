"""A query that begins with WITH RECURSIVE or WITH MUTUALLY RECURSIVE, split into its parts with Spark's lexer.

    WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 9)  r (a int, b int) AS (SELECT ...), ...  SELECT ...
                             limits                        name  columns        query             body

Spark's grammar has no WITH MUTUALLY RECURSIVE, and its analyser no recursion by UNION, so each query is analysed by
itself. A part is the whole text with everything else replaced by spaces, so that lines and columns stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tidemark_planner.errors import refuse
from tidemark_planner.sql.syntax import split_name

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class SqlToken:
    """A word, a sign or a literal, and its position: offsets in code points (`end` is exclusive), line and column from
    1.
    """

    text: str
    start: int
    end: int
    line: int
    column: int

    def is_(self, *words: str) -> bool:
        return self.text.upper() in words


@dataclass(frozen=True)
class Limit:
    """The most iterations, and whether the rows by then are the result (`returns`) or an error."""

    iterations: int
    returns: bool


@dataclass(frozen=True)
class WithQuery:
    """One `name (columns) AS (query)`; `columns`: the text between the parentheses, `column_tokens`: its tokens."""

    name: SqlToken
    columns: str | None
    column_tokens: tuple[SqlToken, ...]
    query: str
    arms: tuple[str, ...]
    """The parts between the outermost UNIONs, each as a query."""

    @property
    def plain_name(self) -> str:
        return split_name(self.name.text)[0]

    def column_names(self) -> tuple[str, ...]:
        """The names of `r (a, b) AS`, which has no types. Raises Refusal where there is something else."""
        for at, token in enumerate(self.column_tokens):
            if not (token.is_(",") if at % 2 else _is_name(token)):
                self._refuse_columns(token, f" instead of {token.text}")
        if len(self.column_tokens) % 2 == 0:
            self._refuse_columns(self.column_tokens[-1] if self.column_tokens else self.name, "")
        return tuple(split_name(token.text)[0] for token in self.column_tokens[::2])

    def _refuse_columns(self, at: SqlToken, instead: str) -> NoReturn:
        message = f"expected {self.plain_name} (column, ...) with names alone{instead}"
        refuse("SYNTAX", message, at.line, at.column, at.text)


@dataclass(frozen=True)
class RecursiveBlock:
    """The queries of the WITH, and the body that reads them."""

    mutually: bool
    limit: Limit | None
    items: tuple[WithQuery, ...]
    body: str


def split_recursive_query(jvm: Any, sql: str) -> RecursiveBlock | None:
    """The parts of a recursive query; None for other texts, and for texts that Spark's parser should judge. Raises
    Refusal.
    """
    if "RECURSIVE" not in sql.upper():
        return None
    tokens = list(_tokens(jvm, sql))
    words = [t.text.upper() for t in tokens[:3]]
    if words[:2] == ["WITH", "RECURSIVE"]:
        return _Splitter(sql, tokens[2:], mutually=False).block()
    if words == ["WITH", "MUTUALLY", "RECURSIVE"]:
        return _Splitter(sql, tokens[3:], mutually=True).block()
    return None


class _Splitter:
    def __init__(self, sql: str, tokens: Sequence[SqlToken], *, mutually: bool) -> None:
        self._sql, self._tokens, self._mutually = sql, tokens, mutually
        self._at = 0

    def block(self) -> RecursiveBlock:
        limit = self._limit() if self._mutually else None
        items = [self._item()]
        while self._next_is(","):
            self._at += 1
            items.append(self._item())
        start = self._peek("the query").start
        return RecursiveBlock(self._mutually, limit, tuple(items), self._blank_outside(start, len(self._sql)))

    def _limit(self) -> Limit | None:
        opens = self._peek("a name")
        if not opens.is_("("):
            return None
        inside = self._parenthesised()
        words = [t.text.upper() for t in inside]
        kinds = {
            ("RETURN", "AT", "RECURSION", "LIMIT"): True,
            ("ERROR", "AT", "RECURSION", "LIMIT"): False,
            ("RECURSION", "LIMIT"): False,
        }
        returns = kinds.get(tuple(words[:-1]))
        if returns is None or not words[-1].isdecimal() or int(words[-1]) < 1:
            at = inside[0] if inside else opens
            message = "expected RETURN AT RECURSION LIMIT n or ERROR AT RECURSION LIMIT n with n of at least 1"
            refuse("SYNTAX", message, at.line, at.column, at.text)
        return Limit(int(words[-1]), returns)

    def _item(self) -> WithQuery:
        name = self._peek("a name")
        if len(split_name(name.text)) != 1:
            self._refuse(name, f"expected a name instead of {name.text}", "SYNTAX")
        self._at += 1
        columns, column_tokens = None, list[SqlToken]()
        inside = self._parenthesised() if self._next_is("(") else None
        if inside is not None and self._next_is("AS", "("):
            columns, column_tokens = self._blank_outside(inside[0].start, inside[-1].end) if inside else "", inside
            inside = None
        if self._next_is("MAX"):
            hint = "write WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT n)"
            self._refuse(self._tokens[self._at], f"MAX RECURSION LEVEL is not supported: {hint}", "UNSUPPORTED")
        if inside is None:
            if self._next_is("AS"):
                self._at += 1
            inside = self._parenthesised()
        if not inside:
            self._refuse(name, f"{name.text} has no query: write {name.text} AS (SELECT ...)", "SYNTAX")
        arms = tuple(self._blank_outside(a[0].start, a[-1].end) for a in _split_at_unions(inside) if a)
        query = self._blank_outside(inside[0].start, inside[-1].end)
        return WithQuery(name, columns, tuple(column_tokens), query, arms)

    def _parenthesised(self) -> list[SqlToken]:
        """The tokens between this parenthesis and the one that closes it."""
        opens = self._peek("(")
        if not opens.is_("("):
            self._refuse(opens, f"expected ( instead of {opens.text}", "SYNTAX")
        depth, first = 0, self._at + 1
        while True:
            token = self._peek(")")
            self._at += 1
            depth += token.is_("(") - token.is_(")")
            if depth == 0:
                return list(self._tokens[first : self._at - 1])

    def _next_is(self, *words: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].is_(*words)

    def _peek(self, wanted: str) -> SqlToken:
        if self._at == len(self._tokens):
            last = self._tokens[-1] if self._tokens else SqlToken("", 0, 0, 1, 1)
            self._refuse(last, f"the text ends where {wanted} is expected", "SYNTAX")
        return self._tokens[self._at]

    def _blank_outside(self, start: int, end: int) -> str:
        """The text with everything outside the range replaced by spaces."""
        blank = "".join(c if c == "\n" else " " for c in self._sql[:start])
        return blank + self._sql[start:end]

    def _refuse(self, at: SqlToken, message: str, code: str) -> NoReturn:
        refuse(code, message, at.line, at.column, at.text)


def _is_name(token: SqlToken) -> bool:
    return token.text.startswith("`") or (_WORD.fullmatch(token.text) is not None and not token.text.isdecimal())


def _split_at_unions(tokens: Sequence[SqlToken]) -> list[list[SqlToken]]:
    """The tokens between the outermost UNIONs."""
    arms: list[list[SqlToken]] = [[]]
    depth, after_union = 0, False
    for token in tokens:
        if depth == 0 and token.is_("UNION"):
            arms.append([])
        elif not (after_union and token.is_("ALL", "DISTINCT")):
            arms[-1].append(token)
        after_union = depth == 0 and token.is_("UNION")
        depth += token.is_("(") - token.is_(")")
    return arms


def _tokens(jvm: Any, sql: str) -> Iterator[SqlToken]:
    """The tokens of the text, without spaces and comments."""
    antlr, grammar = jvm.org.antlr.v4.runtime, jvm.org.apache.spark.sql.catalyst.parser
    lexer = grammar.SqlBaseLexer(grammar.UpperCaseCharStream(antlr.CharStreams.fromString(sql)))
    lexer.removeErrorListeners()
    for token in lexer.getAllTokens().toArray():
        if token.getChannel() == 0:
            line, column = token.getLine(), token.getCharPositionInLine() + 1
            yield SqlToken(token.getText(), token.getStartIndex(), token.getStopIndex() + 1, line, column)
