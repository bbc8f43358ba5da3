"""Parameters of statements: each $n becomes a literal that no value can leave.

    SELECT * FROM t WHERE k = $1 AND n = $2 LIMIT $3      int4 7, an untyped text, int8 10
    SELECT * FROM t WHERE k =  CAST('7' AS int)  AND n =  'O''Hara'  LIMIT 10
    SELECT * FROM t WHERE k = ANY ($1)             k = ANY ( CAST('{7,8}' AS bigint[]) ), which the planner reads

A typed value is a cast of its text, so that it has the type that the client gave, and no token beside it can become a
part of it. A text without a type is an untyped literal, as PostgreSQL takes it. A literal has blanks on both sides, and
is refused beside another text: SQL would join both.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from math import isinf, isnan

from tidemark.errors import DataError, InterfaceError
from tidemark.literals import literal as spark_literal
from tidemark_pgwire.catalogue.types import oid_of, resolved
from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, INVALID_PARAMETER, LIMIT_EXCEEDED, SYNTAX_ERROR, WireError
from tidemark_pgwire.statements.lexer import SPARK, Token, significant
from tidemark_pgwire.values.array_parameters import ELEMENTS
from tidemark_pgwire.values.parameters import MAX_DIGITS, UUID_OID, Parameter, as_text, decimal_size

MAX_PARAMETER_NUMBER = 65_535
MAX_BOUND_CHARACTERS = 8 << 20
"""A bound statement has so many at most: more than a message holds, unless a long value stands in many places."""
KEPT_CHARACTERS = 4 << 10
"""Characters of a statement whose places of parameters are kept."""
_CASTS = {"int2": "smallint", "int4": "int", "int8": "bigint", "float8": "double precision"}
_CASTS |= {name: name for name in ("bytea", "date", "text")}
"""The kinds of parameters whose literal is a cast of their text."""
_TIME = re.compile(r"'\s*\d{4}-\d\d-\d\d[^']*'", re.ASCII)
_OFFSET = re.compile(r":\d\d(?:[.]\d+)?\s*(?:[zZ]|[+-]\d\d(?::?\d\d)?)\s*'", re.ASCII)
_COUNTS = ("LIMIT", "OFFSET")
CASTS = {
    word: oid_of(name)
    for word in (
        "BOOL BOOLEAN INT2 SMALLINT INT INT4 INTEGER INT8 BIGINT FLOAT4 REAL FLOAT8 DOUBLE DATE TIMESTAMP TIMESTAMPTZ "
        "BYTEA NUMERIC DECIMAL"
    ).split()
    if (name := resolved(word.lower()))
}
"""Words of a cast, and the oid of its type."""
TEXTS = {"TEXT": 25, "VARCHAR": 1043, "UUID": UUID_OID}
"""Casts that change no type but that of an array: an untyped parameter is a text."""
_TYPE_WORDS = ("PRECISION", "WITH", "WITHOUT", "TIME", "ZONE")
_ARRAYS = {element: array for array, element in ELEMENTS.items()}


def parameter_count(found: Sequence[Token]) -> int:
    """The greatest n of $n. Raises WireError."""
    return max(
        (parameter_number(token, MAX_PARAMETER_NUMBER) for token in found if token.kind == "parameter"), default=0
    )


def has_local_times(sql: str) -> bool:
    """Whether a text may have a time, in quotes, that is of the session's zone."""
    return any(_OFFSET.search(found[0]) is None for found in _TIME.finditer(sql))


def parameter_number(token: Token, most: int) -> int:
    """The n of $n, from 1. Raises WireError."""
    digits = token.text[1:].lstrip("0")
    if not digits or len(digits) > 9 or int(digits) > most:
        raise WireError("42P02", f"there is no parameter {token.text:.20}", position=token.at + 1)
    return int(digits)


def parameter_types(found: Sequence[Token]) -> dict[int, int]:
    """The oids of parameters whose type follows from their first place: `$1::int`, `LIMIT $2`."""
    types = dict[int, int]()
    for at, token in enumerate(found):
        if token.kind == "parameter":
            before = found[at - 1].word if at else ""
            oid = CASTS["BIGINT"] if before in _COUNTS else _type_of_cast(found[at + 1 : at + 10])
            types.setdefault(parameter_number(token, MAX_PARAMETER_NUMBER), oid)
    return {number: oid for number, oid in types.items() if oid}


def _type_of_cast(after: Sequence[Token]) -> int:
    """The oid of the type that a parameter is cast to by the tokens after it; 0: by none that is known."""
    if [each.text for each in after[:2]] != [":", ":"] or len(after) < 3:
        return 0
    cast, rest = after[2].word, [each.word or each.text for each in after[3:]]
    oid = CASTS.get(cast, 0)
    if cast == "TIMESTAMP" and rest[:1] == ["WITH"]:
        oid = CASTS["TIMESTAMPTZ"]
    while rest and rest[0] in _TYPE_WORDS:
        del rest[0]
    return _ARRAYS.get(oid or TEXTS.get(cast, 0), 0) if rest[:2] == ["[", "]"] else oid


def bind(sql: str, dialect: str, parameters: Sequence[Parameter]) -> str:
    """The statement with literals, of MAX_BOUND_CHARACTERS at most. Raises WireError."""
    places = _kept_places if len(sql) <= KEPT_CHARACTERS else _places
    parts, start, room = list[str](), 0, MAX_BOUND_CHARACTERS - len(sql)
    for at, end, digits, before in places(sql, dialect):
        value = parameters[parameter_number(Token("parameter", digits, at), len(parameters)) - 1]
        made = _count(before, value) if before in _COUNTS else _literal(value, dialect)
        room -= len(made)
        if room < 0:
            text = f"with its parameters the statement has more than {MAX_BOUND_CHARACTERS} characters"
            raise WireError(LIMIT_EXCEEDED, text, hint="Use a long parameter in fewer places.")
        parts += (sql[start:at], f" {made} ")
        start = end
    return "".join([*parts, sql[start:]])


def _places(sql: str, dialect: str) -> tuple[tuple[int, int, str, str], ...]:
    """The begin, end and text of each parameter, and the word before it. Raises WireError."""
    found, before = list[tuple[int, int, str, str]](), Token("mark", "", 0)
    for token in significant(sql, dialect):
        joined = {before.kind, token.kind}
        if "parameter" in joined and joined <= {"parameter", "text"}:
            raise WireError(SYNTAX_ERROR, f'syntax error at or near "{token.text:.20}"', position=token.at + 1)
        if token.kind == "parameter":
            found.append((token.at, token.end, token.text, before.word))
        before = token
    return tuple(found)


_kept_places = lru_cache(256)(_places)
"""Prepared statements are bound again and again."""


def _count(word: str, of: Parameter) -> str:
    """The literal after LIMIT or OFFSET, which take digits alone. NULL: no limit."""
    if of.value is None:
        return "0" if word == "OFFSET" else str(2**31 - 1)
    text = str(of.value)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise WireError(INVALID_PARAMETER, f"a limit is a number of rows, not {text!r:.40}")
    return str(int(text))


def _literal(of: Parameter, dialect: str) -> str:
    try:
        return spark_literal(of.value) if dialect == SPARK else _postgres_literal(of)
    except (DataError, InterfaceError) as error:
        raise WireError(INVALID_PARAMETER, str(error)) from None


def _postgres_literal(of: Parameter) -> str:
    kind, value = of.kind, of.value
    if kind == "numeric" and value is None:
        return f"CAST(NULL AS numeric({MAX_DIGITS}, 0))"
    if kind == "numeric":
        precision, scale = decimal_size(value)
        return f"CAST('{value:f}' AS numeric({precision}, {scale}))"
    if kind in _CASTS:
        return f"CAST({_quoted(value if value is None else as_text(value))} AS {_CASTS[kind]})"
    if kind == "bool":
        return "CAST(NULL AS boolean)" if value is None else str(value).upper()
    if kind in ("timestamp", "timestamptz"):
        return f"CAST({_quoted(_moment(of))} AS {kind})"
    if kind == "float4":
        return f"CAST({_quoted(None if value is None else _real(value))} AS real)"
    if kind == "unknown":
        return _quoted(value)
    if kind.endswith("[]"):
        return f"CAST({_quoted(of.text)} AS {kind})"
    raise WireError(
        FEATURE_NOT_SUPPORTED,
        f"a parameter of type {kind} has no literal of PostgreSQL's dialect that is known to mean the same in Spark",
        hint="SET dialect = spark, which takes it.",
    )


def _moment(of: Parameter) -> str | None:
    """A time as a text; a timestamptz without an offset is of the session's zone, which the planner has."""
    if of.value is None or of.text is None:
        return None
    is_local = of.kind == "timestamptz" and datetime.fromisoformat(of.text.strip()).tzinfo is None
    value: datetime = of.value.replace(tzinfo=None) if is_local else of.value
    return value.isoformat(" ")


def _real(value: float) -> str:
    """The fewest digits that are the same real."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    packed = struct.pack("!f", value)
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("!f", float(text)) == packed:
            return text
    return repr(value)


def _quoted(value: object) -> str:
    """A text of standard SQL, in which a backslash is itself."""
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"
