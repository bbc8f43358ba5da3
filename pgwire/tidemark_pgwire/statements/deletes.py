"""DELETE: the rows whose whole primary key is given, by literals and parameters.

    DELETE FROM NAME [[AS] ALIAS] WHERE COLUMN = VALUE [AND ...]
                                        COLUMN IN (VALUE, ...)
                                        (COLUMN, ...) = (VALUE, ...)
                                        (COLUMN, ...) IN ((VALUE, ...), ...)      also IN (VALUES (VALUE, ...), ...)

Each term gives columns, and the values that they may have; AND combines them. Any other condition would need a read of
the table, which other writers change meanwhile: it is refused by name.
"""

from __future__ import annotations

from math import prod

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, LIMIT_EXCEEDED, SYNTAX_ERROR, TOO_COMPLEX, WireError
from tidemark_pgwire.statements.inserts import DELETE, Cell, TableName, Write, cell_of, table_name
from tidemark_pgwire.statements.lexer import Token
from tidemark_pgwire.statements.words import Words

MAX_ROWS = 100_000
MAX_CELLS = 5 * MAX_ROWS
MAX_DEPTH = 16
"""Of parentheses around conditions."""
_ENDS = ("AND", ")", "")
_HINT = "Select the keys of the rows first, then delete by these."
Term = tuple[tuple[str, ...], list[tuple[Cell, ...]]]
"""Columns, and the tuples of values that they may have."""


def delete(words: Words) -> Write:
    """After DELETE. Raises WireError."""
    words.require("FROM")
    words.take("ONLY")
    table = table_name(words)
    qualifiers = {"public", table.source, table.table or table.source}
    if words.take("AS") or words.peek().word not in ("WHERE", "USING", "RETURNING", ""):
        qualifiers = {words.name()}
    if words.peek().word in ("USING", "RETURNING"):
        raise _refusal(f"DELETE ... {words.peek().word} is not supported", words.peek())
    if words.peek().kind == "end":
        raise _refusal("DELETE without WHERE is not supported: DROP TABLE, then CREATE TABLE, empties one")
    words.require("WHERE")
    return _write(table, _terms(words, qualifiers))


def _write(table: TableName, terms: list[Term]) -> Write:
    columns = tuple(name for names, _ in terms for name in names)
    if len({name.lower() for name in columns}) < len(columns):
        raise _refusal("a column has several conditions: give each column of the primary key its values once")
    count = prod(len(rows) for _, rows in terms)
    if count > MAX_ROWS or count * len(columns) > MAX_CELLS:
        raise WireError(LIMIT_EXCEEDED, f"DELETE takes at most {MAX_ROWS} keys and {MAX_CELLS} values in a statement")
    rows = terms[0][1]
    for _, more in terms[1:]:
        rows = [(*before, *after) for before in rows for after in more]
    return Write(table, columns, tuple(rows), DELETE)


def _terms(words: Words, qualifiers: set[str], depth: int = 0) -> list[Term]:
    terms = _term(words, qualifiers, depth)
    while words.take("AND"):
        terms += _term(words, qualifiers, depth)
    if words.peek().word == "RETURNING":
        raise _refusal("DELETE ... RETURNING is not supported", words.peek())
    if words.peek().kind != "end":
        raise _condition(words.peek())
    return terms


def _term(words: Words, qualifiers: set[str], depth: int) -> list[Term]:
    """`depth`: in how many parentheses the term is."""
    opened = words.peek()
    if opened.text != "(":
        return [((_column(words, qualifiers),), _values(words, 1))]
    if depth >= MAX_DEPTH:
        text = f"a condition of DELETE is in at most {MAX_DEPTH} parentheses"
        raise WireError(TOO_COMPLEX, text, position=opened.at + 1)
    inner = words.inner()
    if words.peek().text != "=" and words.peek().word != "IN":
        return _terms(inner, qualifiers, depth + 1)
    names = [_column(inner, qualifiers)]
    while inner.take_mark(","):
        names.append(_column(inner, qualifiers))
    inner.end()
    return [(tuple(names), _values(words, len(names)))]


def _values(words: Words, width: int) -> list[tuple[Cell, ...]]:
    """After the columns: `= VALUE`, or `IN (...)`."""
    if words.take_mark("="):
        if width == 1 and words.peek().text != "(":
            return [(_value(words, _ENDS),)]
        return [_tuple(words, width)]
    if not words.take("IN"):
        raise _condition(words.peek())
    inner = words.inner()
    if inner.peek().word in ("SELECT", "WITH"):
        raise _refusal("DELETE ... IN (SELECT ...) is not supported", words.before(), _HINT)
    of_values = inner.take("VALUES")
    rows = list[tuple[Cell, ...]]()
    while True:
        tuples = of_values or width > 1
        rows.append(_tuple(inner, width) if tuples else (_value(inner, (",", "")),))
        if not inner.take_mark(","):
            inner.end()
            return rows


def _tuple(words: Words, width: int) -> tuple[Cell, ...]:
    opened = words.peek()
    inner = words.inner()
    cells = [_value(inner, (",", ""))]
    while inner.take_mark(","):
        cells.append(_value(inner, (",", "")))
    inner.end()
    if len(cells) != width:
        raise WireError(SYNTAX_ERROR, "unequal number of entries in row expressions", position=opened.at + 1)
    return tuple(cells)


def _value(words: Words, ends: tuple[str, ...]) -> Cell:
    if words.peek().word == "DEFAULT":
        raise words.wrong()
    return cell_of(words, (*ends, "OR", "RETURNING"))


def _column(words: Words, qualifiers: set[str]) -> str:
    """COLUMN, or with its table before it."""
    token = words.peek()
    if token.kind not in ("word", "name"):
        raise _condition(token)
    parts = [words.name()]
    while words.take_mark("."):
        parts.append(words.name())
    if any(part not in qualifiers for part in parts[:-1]):
        text = f'missing FROM-clause entry for table "{parts[-2]:.80}"'
        raise WireError("42P01", text, position=token.at + 1)
    return parts[-1]


def _condition(token: Token) -> WireError:
    return _refusal(
        "DELETE takes rows by their whole primary key alone: COLUMN = VALUE AND ..., or (COLUMN, ...) IN (...)",
        token,
        _HINT,
    )


def _refusal(text: str, token: Token | None = None, hint: str = "") -> WireError:
    return WireError(FEATURE_NOT_SUPPORTED, text, hint=hint, position=token.at + 1 if token is not None else 0)
