"""The tokens of one statement, as its parser takes them from the left."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, SYNTAX_ERROR, WireError
from tidemark_pgwire.statements.lexer import Token

MAX_NAME = 255
T = TypeVar("T")


class Words:
    """The tokens of one statement, or those within parentheses of it, taken from the left. Positions are those of the
    whole statement.

    `within`: the first token, the one behind the last, and where that begins; None: the whole statement.
    """

    def __init__(
        self,
        sql: str,
        found: list[Token],
        dialect: str,
        within: tuple[int, int, int] | None = None,
        closing: dict[int, int] | None = None,
    ) -> None:
        self.sql, self.dialect, self._found = sql, dialect, found
        self._at, self._last, self._until = within or (0, len(found), len(sql))
        self._closing = {} if closing is None else closing
        """The number of the closing parenthesis, by that of the opening one; empty until it is asked for."""

    def peek(self, further: int = 0) -> Token:
        """The token that comes next, or one behind it."""
        at = self._at + further
        return self._found[at] if at < self._last else Token("end", "", self._until)

    def next(self) -> Token:
        token = self.peek()
        self._at += 1
        return token

    def before(self) -> Token:
        """The token that was taken last."""
        return self._found[self._at - 1]

    def remaining_tokens(self) -> list[Token]:
        """The tokens that are left."""
        return self._found[self._at : self._last]

    def take(self, *words: str) -> bool:
        """Take these words, if they come next."""
        if self.peek().word != words[0]:
            return False
        ahead = self._found[self._at : min(self._at + len(words), self._last)]
        if [token.word for token in ahead] != list(words):
            return False
        self._at += len(words)
        return True

    def take_mark(self, mark: str) -> bool:
        if self.peek().kind == "mark" and self.peek().text == mark:
            self._at += 1
            return True
        return False

    def require(self, *words: str) -> None:
        if not self.take(*words):
            raise self.syntax_error()

    def require_mark(self, mark: str) -> None:
        if not self.take_mark(mark):
            raise self.syntax_error()

    def name(self) -> str:
        token = self.next()
        if token.kind not in ("word", "name"):
            raise self.syntax_error(token)
        if len(token.text) > MAX_NAME:
            raise WireError("42622", f"a name has at most {MAX_NAME} characters", position=token.at + 1)
        if not token.identifier:
            raise WireError(SYNTAX_ERROR, "zero-length delimited identifier", position=token.at + 1)
        return token.identifier

    def end(self) -> None:
        if self.peek().kind != "end":
            raise self.syntax_error()

    def in_parentheses(self) -> tuple[str, int]:
        """The text within the parentheses that come next, and where it begins."""
        inner = self.inner()
        at = self._found[inner._at - 1].end
        return self.sql[at : inner._until], at

    def inner(self) -> Words:
        """The words within the parentheses that come next. They are not copied."""
        at, opened = self._at, self.next()
        if opened.text != "(":
            raise self.syntax_error(opened)
        if not self._closing:
            self._closing.update(_pairs(self._found))
        if (last := self._closing.get(at)) is None:
            raise self.syntax_error(Token("end", "", len(self.sql)))
        self._at = last + 1
        return Words(self.sql, self._found, self.dialect, (at + 1, last, self._found[last].at), self._closing)

    def listed(self, read: Callable[[Words], T]) -> tuple[T, ...]:
        """The values that `read` takes: one, and one more after each comma that follows. Raises WireError."""
        found = [read(self)]
        while self.take_mark(","):
            found.append(read(self))
        return tuple(found)

    def inside(self, read: Callable[[Words], T]) -> tuple[T, ...]:
        """The values that `read` takes of all words within the parentheses that come next. Raises WireError."""
        inner = self.inner()
        found = inner.listed(read)
        inner.end()
        return found

    def names(self) -> tuple[str, ...]:
        """The names within the parentheses that come next. Raises WireError."""
        return self.inside(Words.name)

    def take_remaining_text(self) -> tuple[str, int]:
        """The text of the remaining tokens, which are read with it, and its position in the statement."""
        at = self.peek().at
        self._at = self._last
        return self.sql[at : self._until], at

    def syntax_error(self, token: Token | None = None) -> WireError:
        """The error at a token; by default at the next one."""
        token = token or self.peek()
        if token.kind == "end" and self._last < len(self._found):
            token = self._found[self._last]  # the mark that closes the parentheses
        if token.kind == "end":
            return WireError(SYNTAX_ERROR, "syntax error at end of input", position=len(self.sql) + 1)
        return WireError(SYNTAX_ERROR, f'syntax error at or near "{token.text:.40}"', position=token.at + 1)


def refusal(text: str, token: Token | None = None, hint: str = "") -> WireError:
    """The error of a construct that is not supported. `token`: its place in the statement."""
    return WireError(FEATURE_NOT_SUPPORTED, text, hint=hint, position=token.at + 1 if token is not None else 0)


def _pairs(found: list[Token]) -> dict[int, int]:
    pairs, opened = dict[int, int](), list[int]()
    for number, token in enumerate(found):
        if token.kind == "mark":
            if token.text == "(":
                opened.append(number)
            elif token.text == ")" and opened:
                pairs[opened.pop()] = number
    return pairs
