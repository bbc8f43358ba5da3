"""DELETE and UPDATE: the rows whose whole primary key is given, by literals and parameters.

    DELETE FROM NAME [[AS] ALIAS]                               WHERE COLUMN = VALUE [AND ...]
    UPDATE NAME [[AS] ALIAS] SET COLUMN = VALUE [, ...]               COLUMN IN (VALUE, ...)
                                                                      (COLUMN, ...) = (VALUE, ...)
                                                                      (COLUMN, ...) IN ((VALUE, ...), ...)
                                                                      (COLUMN, ...) IN (VALUES (VALUE, ...), ...)

Each term gives columns, and the values that they may have; AND combines them. Any other condition, and any value that
has to be computed, would need a read of the table, which other writers change meanwhile: it is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tidemark_pgwire.errors import LIMIT_EXCEEDED, SYNTAX_ERROR, TOO_COMPLEX, WireError
from tidemark_pgwire.statements.inserts import DELETE, UPDATE, Cell, TableName, Write, cell_of, table_name
from tidemark_pgwire.statements.lexer import Token
from tidemark_pgwire.statements.words import Words, refusal

MAX_ROWS = 100_000
MAX_CELLS = 5 * MAX_ROWS
MAX_DEPTH = 16
"""The parentheses around a condition, at most."""
_ENDS = ("AND", ")", "")
Term = tuple[tuple[str, ...], list[tuple[Cell, ...]]]
"""Columns, and the tuples of values that they may have."""


@dataclass(frozen=True)
class _Statement:
    """`verb`: DELETE or UPDATE; `qualifiers`: the names of its table before a column."""

    verb: str
    qualifiers: frozenset[str]

    @property
    def hint(self) -> str:
        return f"Select the keys of the rows first, then {self.verb.lower()} by these."

    def condition(self, token: Token) -> WireError:
        """The error of a condition that is not by the key."""
        text = (
            f"{self.verb} takes rows by their whole primary key alone: COLUMN = VALUE AND ..., or (COLUMN, ...) IN "
            "(...)"
        )
        return refusal(text, token, self.hint)


def delete(words: Words) -> Write:
    """The statement after the word DELETE. Raises WireError."""
    words.require("FROM")
    words.take("ONLY")
    table = table_name(words)
    of = _Statement("DELETE", _qualifiers(words, table, ("WHERE", "USING", "RETURNING", "")))
    if words.peek().kind == "end":
        raise refusal("DELETE without WHERE is not supported: DROP TABLE, then CREATE TABLE, empties one")
    return _write(of, table, _where_terms(words, of))


def update(words: Words) -> Write:
    """The statement after the word UPDATE. Raises WireError."""
    words.take("ONLY")
    table = table_name(words)
    of = _Statement("UPDATE", _qualifiers(words, table, ("SET",)))
    words.require("SET")
    changes = words.listed(_change)
    if words.peek().kind == "end":
        raise refusal("UPDATE without WHERE is not supported: it takes rows by their whole primary key alone")
    return _write(of, table, _where_terms(words, of), changes)


def _change(words: Words) -> tuple[str, Cell]:
    """COLUMN = VALUE."""
    if words.peek().text == "(":
        raise refusal("set each column by itself: COLUMN = VALUE", words.peek())
    name = words.name()
    words.require_mark("=")
    return name, cell_of(words, (",", "WHERE", "FROM", "RETURNING", ""))


def _qualifiers(words: Words, table: TableName, following: tuple[str, ...]) -> frozenset[str]:
    """The names of the table before its columns: its alias, if it has one. `following`: what may come then."""
    if words.take("AS") or words.peek().word not in following:
        return frozenset((words.name(),))
    return frozenset(("public", table.source, table.table or table.source))


def _where_terms(words: Words, of: _Statement) -> list[Term]:
    """The terms of the WHERE that comes next. Raises WireError."""
    if words.peek().word in ("USING", "FROM", "RETURNING"):
        raise refusal(f"{of.verb} ... {words.peek().word} is not supported", words.peek())
    words.require("WHERE")
    return _terms(words, of)


def _write(of: _Statement, table: TableName, terms: list[Term], changes: Sequence[tuple[str, Cell]] = ()) -> Write:
    columns = tuple(name for names, _ in terms for name in names)
    if len({name.lower() for name in columns}) < len(columns):
        raise refusal("a column has several conditions: give each column of the primary key its values once")
    count, width = prod(len(rows) for _, rows in terms), len(changes) + len(columns)
    if count > MAX_ROWS or count * width > MAX_CELLS:
        raise WireError(
            LIMIT_EXCEEDED, f"{of.verb} takes at most {MAX_ROWS} keys and {MAX_CELLS} values in a statement"
        )
    rows = terms[0][1]
    for _, more in terms[1:]:
        rows = [(*before, *after) for before in rows for after in more]
    names, values = (tuple(part) for part in zip(*changes, strict=True)) if changes else ((), ())
    made = tuple((*values, *row) for row in rows)
    return Write(table, (*names, *columns), made, UPDATE if changes else DELETE, changed=len(changes))


def _terms(words: Words, of: _Statement, depth: int = 0) -> list[Term]:
    terms = _term(words, of, depth)
    while words.take("AND"):
        terms += _term(words, of, depth)
    if words.peek().word == "RETURNING":
        raise refusal(f"{of.verb} ... RETURNING is not supported", words.peek())
    if words.peek().kind != "end":
        raise of.condition(words.peek())
    return terms


def _term(words: Words, of: _Statement, depth: int) -> list[Term]:
    """`depth`: in how many parentheses the term is."""
    opened = words.peek()
    if opened.text != "(":
        return [((_column(words, of),), _values(words, 1, of))]
    if depth >= MAX_DEPTH:
        text = f"a condition of {of.verb} is in at most {MAX_DEPTH} parentheses"
        raise WireError(TOO_COMPLEX, text, position=opened.at + 1)
    inner = words.inner()
    if words.peek().text != "=" and words.peek().word != "IN":
        return _terms(inner, of, depth + 1)
    names = inner.listed(lambda each: _column(each, of))
    inner.end()
    return [(names, _values(words, len(names), of))]


def _values(words: Words, width: int, of: _Statement) -> list[tuple[Cell, ...]]:
    """The values after the columns: `= VALUE`, or `IN (...)`."""
    if words.take_mark("="):
        if width == 1 and words.peek().text != "(":
            return [(_value(words, _ENDS),)]
        return [_tuple(words, width)]
    if not words.take("IN"):
        raise of.condition(words.peek())
    inner = words.inner()
    if inner.peek().word in ("SELECT", "WITH"):
        raise refusal(f"{of.verb} ... IN (SELECT ...) is not supported", words.before(), of.hint)
    of_tuples = inner.take("VALUES") or width > 1
    rows = inner.listed(lambda each: _tuple(each, width) if of_tuples else (_value(each),))
    inner.end()
    return [*rows]


def _tuple(words: Words, width: int) -> tuple[Cell, ...]:
    opened = words.peek()
    cells = words.inside(_value)
    if len(cells) != width:
        raise WireError(SYNTAX_ERROR, "unequal number of entries in row expressions", position=opened.at + 1)
    return cells


def _value(words: Words, ends: tuple[str, ...] = (",", "")) -> Cell:
    if words.peek().word == "DEFAULT":
        raise words.syntax_error()
    return cell_of(words, (*ends, "OR", "RETURNING"))


def _column(words: Words, of: _Statement) -> str:
    """COLUMN, or with its table before it."""
    token = words.peek()
    if token.kind not in ("word", "name"):
        raise of.condition(token)
    parts = [words.name()]
    while words.take_mark("."):
        parts.append(words.name())
    if any(part not in of.qualifiers for part in parts[:-1]):
        text = f'missing FROM-clause entry for table "{parts[-2]:.80}"'
        raise WireError("42P01", text, position=token.at + 1)
    return parts[-1]
