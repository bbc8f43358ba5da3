"""INSERT: rows of literals and parameters. The values stay texts, as the columns' types are the gateway's to know.

    INSERT INTO NAME [(COLUMN, ...)] VALUES (VALUE, ...), ... [ON CONFLICT (COLUMN, ...) DO UPDATE SET
        COLUMN = EXCLUDED.COLUMN, ...]
    VALUE: 'text' | number | TRUE | FALSE | NULL | DEFAULT | $1, which may have a cast to the column's type

The parser refuses values that have to be computed, and the clauses that PostgreSQL has behind the rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from tidemark_pgwire.errors import SYNTAX_ERROR, WireError
from tidemark_pgwire.statements.binding import CASTS, MAX_PARAMETER_NUMBER, parameter_number
from tidemark_pgwire.statements.lexer import POSTGRES, Token
from tidemark_pgwire.statements.words import Words, refusal
from tidemark_pgwire.values.types import BY_OID

INSERT, UPSERT, DELETE, UPDATE = "insert", "upsert", "delete", "update"
"""Operations on rows of a call of the gateway."""
_TYPES = {word: BY_OID[oid].name for word, oid in CASTS.items() if word != "BYTEA"}
_TYPES |= dict.fromkeys(("TEXT", "VARCHAR", "STRING"), "text")
"""The types of casts by their first word."""
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_NUMBER = re.compile(r"(?:\d++\.?+\d*+|\.\d++)(?:e[-+]?+\d++)?+", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class TableName:
    """`table` empty: the one that the name of the DataSource alone means."""

    source: str
    table: str = ""

    def __str__(self) -> str:
        return f"{self.source}.{self.table}" if self.table else self.source


class Cell(NamedTuple):
    """A value: a text, or the parameter of this number; neither: NULL. `cast`: a type of _TYPES; empty: none.
    `is_number`: the text is a literal without quotes."""

    text: str | None = None
    parameter: int = 0
    cast: str = ""
    is_number: bool = False


@dataclass(frozen=True)
class OnConflict:
    """ON CONFLICT: the columns of the key, and those that are set to the new row's."""

    key: tuple[str, ...]
    replaced: tuple[str, ...]


@dataclass(frozen=True)
class Write:
    """Rows to insert, to upsert (with `conflict`), to delete or to update. `columns` empty: the table's; of a delete
    those of the key; of an update first the `changed` ones that are set, then the key's. The rows have equally many
    cells."""

    table: TableName
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    operation: str = INSERT
    conflict: OnConflict | None = None
    changed: int = 0

    @property
    def tag(self) -> str:
        return self.operation.upper() if self.operation in (DELETE, UPDATE) else "INSERT"

    @property
    def by_key(self) -> bool:
        """Whether its rows are found, and counted, by the primary key alone."""
        return self.operation in (DELETE, UPDATE)


def insert(words: Words) -> Write:
    """The statement after the word INSERT. Raises WireError."""
    words.require("INTO")
    table = table_name(words)
    columns = column_names(words)
    if not words.take("VALUES"):
        raise refusal("INSERT takes VALUES: rows of a query are a view's (CREATE MATERIALIZED VIEW)")
    rows = words.listed(_row)
    conflict = _conflict(words) if words.take("ON") else None
    if words.peek().word == "RETURNING":
        raise refusal("INSERT ... RETURNING is not supported: the rows are there once they are committed")
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise WireError(SYNTAX_ERROR, "VALUES lists must all be the same length")
    if columns and len(columns) != width:
        more = "expressions than target columns" if width > len(columns) else "target columns than expressions"
        raise WireError(SYNTAX_ERROR, f"INSERT has more {more}")
    return Write(table, columns, rows, UPSERT if conflict else INSERT, conflict)


def _conflict(words: Words) -> OnConflict:
    """The clause after the word ON: the one form that an upsert by key is."""
    words.require("CONFLICT")
    if words.peek().text != "(":
        raise refusal("name the primary key: ON CONFLICT (COLUMN, ...) DO UPDATE SET ...", words.peek())
    key = column_names(words)
    if words.peek().word == "WHERE" or words.take("DO", "NOTHING"):
        raise refusal("ON CONFLICT (COLUMN, ...) DO UPDATE SET COLUMN = EXCLUDED.COLUMN, ... alone is supported")
    words.require("DO", "UPDATE", "SET")
    replaced = words.listed(_excluded)
    if words.peek().word == "WHERE":
        raise refusal("ON CONFLICT ... WHERE is not supported: the row that is there would have to be read")
    return OnConflict(key, replaced)


def _excluded(words: Words) -> str:
    """COLUMN = EXCLUDED.COLUMN, of one column."""
    first = words.peek()
    if first.text == "(":
        raise refusal("set each column by itself: COLUMN = EXCLUDED.COLUMN", first)
    name = words.name()
    words.require_mark("=")
    value = words.peek()
    if words.take("EXCLUDED") and words.take_mark(".") and words.name().lower() == name.lower():
        return name
    raise refusal(f"ON CONFLICT sets a column to the new row's value alone: {name:.80} = EXCLUDED.{name:.80}", value)


def table_name(words: Words) -> TableName:
    """SOURCE.TABLE, or SOURCE or public.SOURCE alone."""
    name = words.name()
    if not words.take_mark("."):
        return TableName(name)
    return TableName(words.name()) if name == "public" else TableName(name, words.name())


def column_names(words: Words) -> tuple[str, ...]:
    """(COLUMN, ...), if it comes next."""
    return words.names() if words.peek().text == "(" else ()


def _row(words: Words) -> tuple[Cell, ...]:
    words.require_mark("(")
    cells = words.listed(cell_of)
    words.require_mark(")")
    return cells


def cell_of(words: Words, ends: Collection[str] = (",", ")")) -> Cell:
    """The value that comes next. `ends`: what may follow it, in upper case; empty: the end. Raises WireError."""
    token = words.peek()
    if token.kind in ("number", "text") and words.peek(1).text in ends and (plain := _plain(token)) is not None:
        words.next()
        return plain
    if words.take("CAST"):
        words.require_mark("(")
        inside = _value(words)
        words.require("AS")
        cell = _with_cast(words, inside)
        words.require_mark(")")
        return cell
    cell = _value(words)
    if words.peek().text == ":":
        words.require_mark(":")
        words.require_mark(":")
        cell = _with_cast(words, cell)
    if words.peek().text.upper() not in ends:
        raise refusal("values are literals and parameters: nothing is computed", words.peek())
    return cell


def _plain(token: Token) -> Cell | None:
    """A number or a text of the usual form, as most values of long statements are; None: it is looked at in detail."""
    if token.kind == "number":
        return Cell(token.text, is_number=True) if _NUMBER.fullmatch(token.text) else None
    return Cell(token.value) if token.text[0] == "'" and "\\" not in token.text else None


def _value(words: Words) -> Cell:
    token = words.next()
    if token.word in ("NULL", "DEFAULT"):
        return Cell()
    if token.word in ("TRUE", "FALSE"):
        return Cell(token.word.lower())
    if token.kind == "parameter":
        return Cell(parameter=parameter_number(token, MAX_PARAMETER_NUMBER))
    if token.word in ("DATE", "TIMESTAMP", "TIMESTAMPTZ") and words.peek().kind == "text":
        return Cell(literal(words.next(), words.dialect), cast=_TYPES[token.word])
    if token.kind == "text":
        return Cell(literal(token, words.dialect))
    sign = token.text if token.text in ("-", "+") else ""
    number = words.next() if sign else token
    if number.kind == "number" or number.text == "." or number.text[:1].isdigit():
        return Cell(sign.replace("+", "") + _number(words, number), is_number=True)
    raise refusal("values are literals and parameters: nothing is computed", token)


def _number(words: Words, token: Token) -> str:
    """The digits of `1e-5` are several tokens, and in Spark's dialect those of `1.5`."""
    text, end = token.text, token.end
    while (following := words.peek()).at == end and following.kind != "end":
        after_e = text[-1:] in "eE" and following.text in ("-", "+")
        if not (after_e or following.text == "." or following.text[0].isalnum()):
            break
        text, end = text + words.next().text, following.end
    if _NUMBER.fullmatch(text) is None:
        raise words.syntax_error(token)
    return text


def _with_cast(words: Words, cell: Cell) -> Cell:
    token = words.next()
    if token.word == "CHARACTER" and words.take("VARYING"):
        cast = "text"
    elif (cast := _TYPES.get(token.word, "")) == "timestamp" and words.take("WITH", "TIME", "ZONE"):
        cast = "timestamptz"
    if token.word == "DOUBLE":
        words.take("PRECISION")
    if token.word == "TIMESTAMP":
        words.take("WITHOUT", "TIME", "ZONE")
    if not cast or words.peek().text == "(" or cell.cast not in ("", cast):
        raise refusal("a value is cast to a plain type of its column alone", token)
    return cell._replace(cast=cast)


def literal(token: Token, dialect: str) -> str:
    """The value of a text. Raises WireError: its form is none that is known to mean the same."""
    text = token.text
    if dialect == POSTGRES and text[0] in "eE" and text[1:2] == "'":
        return _ESCAPE.sub(_unescaped, text[2:-1].replace("''", "'"))
    if dialect == POSTGRES and text[0] == "$":
        tag = text[: text.index("$", 1) + 1]
        return text[len(tag) : -len(tag)]
    if text[0] != "'" or (dialect != POSTGRES and "\\" in text):
        raise refusal("write the text as 'text', or send it as a parameter", token)
    return token.value


def _unescaped(found: re.Match[str]) -> str:
    short, long, hexadecimal, octal, other = found.groups()
    if other is not None:
        return _ESCAPES.get(other, other)
    code = int(octal, 8) if octal else int(short or long or hexadecimal, 16)
    if ((octal or hexadecimal) and code > 127) or 0xD800 <= code < 0xE000 or not 0 < code < 0x110000:
        raise refusal(f"{found[0]} is no escape of a character of UTF-8")
    return chr(code)
