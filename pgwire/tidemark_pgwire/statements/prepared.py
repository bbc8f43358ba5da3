"""PREPARE and EXECUTE: the types that a prepared statement says, and the values that it is run with.

    PREPARE NAME [(TYPE, ...)] AS SELECT ... | INSERT ... | UPDATE ... | DELETE ...
    EXECUTE NAME [(VALUE, ...)]
    VALUE: 'text' | number | TRUE | FALSE | NULL, which may have a cast

A value is the text that a client would send for the parameter: its type is the parameter's, or follows from its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, SYNTAX_ERROR, WireError
from tidemark_pgwire.messages.backend import TEXT
from tidemark_pgwire.statements.binding import CASTS, TEXTS
from tidemark_pgwire.statements.inserts import Cell, cell_of
from tidemark_pgwire.statements.words import Words
from tidemark_pgwire.values.array_parameters import ELEMENTS
from tidemark_pgwire.values.parameters import Parameter, decoded
from tidemark_pgwire.values.types import BY_NAME

MAX_EXPONENT = 400
_TYPES = {**CASTS, **TEXTS, "STRING": 25, "CHARACTER": 1043, "UNKNOWN": 0}
"""The oids of types by their first word."""
_CASTS = {
    name: BY_NAME[name].oid
    for name in "int2 int4 int8 numeric bool float4 float8 date text timestamp timestamptz".split()
}
"""The oids of the casts of values."""
_KINDS = {oid: "integer" if name.startswith("int") else name for name, oid in _CASTS.items()} | {1043: "text"}
"""The types that values are cast to, by the oids of parameters: integers of any width are of one kind."""


def types_of(words: Words) -> tuple[int, ...]:
    """The oids of (TYPE, ...), if it comes next. Raises WireError."""
    return words.inside(_type) if words.peek().text == "(" else ()


def _type(words: Words) -> int:
    """A length or precision has no effect, as in PostgreSQL."""
    token = words.next()
    if token.kind not in ("word", "name"):
        raise words.syntax_error(token)
    if (oid := _TYPES.get(token.word)) is None:
        hint = "Leave the type out: that of the value follows from its place."
        text = f'parameters of type "{token.text:.40}" are not supported'
        raise WireError(FEATURE_NOT_SUPPORTED, text, hint=hint, position=token.at + 1)
    if token.word == "CHARACTER":
        words.require("VARYING")
    if token.word == "DOUBLE":
        words.take("PRECISION")
    if words.peek().text == "(":
        words.in_parentheses()
    if token.word == "TIMESTAMP":
        oid = _TYPES["TIMESTAMPTZ"] if words.take("WITH", "TIME", "ZONE") else oid
        words.take("WITHOUT", "TIME", "ZONE")
    if words.take_mark("["):
        words.require_mark("]")
        oid = next((array for array, element in ELEMENTS.items() if element == oid), 0)
        if not oid:
            raise WireError(FEATURE_NOT_SUPPORTED, f"arrays of {token.text:.40} are not supported as parameters")
    return oid


def values_of(words: Words) -> tuple[Cell, ...]:
    """The values of (VALUE, ...), if it comes next. Raises WireError."""
    if not words.take_mark("("):
        return ()
    cells = words.listed(_value)
    words.require_mark(")")
    return cells


def _value(words: Words) -> Cell:
    first = words.peek()
    if first.word == "DEFAULT" or first.kind == "end" or first.text in (",", ")"):
        raise words.syntax_error()
    cell = cell_of(words)
    if cell.parameter:
        raise WireError("42P02", f"there is no parameter {first.text:.20}", position=first.at + 1)
    if not cell.is_number or cell.text is None:
        return cell
    return cell._replace(text=_plain(cell.text))


def _plain(number: str) -> str:
    """The digits of a number, as PostgreSQL prints it."""
    value: Decimal | None = None
    with suppress(InvalidOperation):  # an exponent that Decimal does not have
        value = Decimal(number)
    if value is None or abs(value.adjusted()) > MAX_EXPONENT:
        raise WireError("22003", f"the number {number:.40} is out of range")
    return format(value, "f")


def parameters_of(name: str, types: Sequence[int], values: Sequence[Cell]) -> tuple[Parameter, ...]:
    """The parameters of a statement with these types. Raises WireError."""
    if len(types) != len(values):
        raise WireError(
            SYNTAX_ERROR,
            f'wrong number of parameters for prepared statement "{name}": '
            f"expected {len(types)} parameters but got {len(values)}",
        )
    return tuple(map(_parameter, types, values))


def _parameter(oid: int, cell: Cell) -> Parameter:
    data = None if cell.text is None else cell.text.encode()
    cast = _CASTS.get(cell.cast, 0)
    if cast and cast != oid:
        if oid and _KINDS[cast] != _KINDS.get(oid):
            text = f"a value is cast to {cell.cast}, and its parameter has another type: no value is converted"
            raise WireError(FEATURE_NOT_SUPPORTED, text, hint="Cast the value to the type of its parameter, or not.")
        decoded(cast, TEXT, data)  # it must be a value of the cast, too
    return decoded(oid or cast, TEXT, data)
