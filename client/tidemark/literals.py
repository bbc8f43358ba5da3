"""Parameters of statements: each `?` becomes a literal of Spark's SQL, which no value can leave.

    SELECT * FROM t WHERE name = ? AND note <> '?' -- why?      ("O'Hara",)
    SELECT * FROM t WHERE name =  'O\\'Hara'  AND note <> '?' -- why?

A `?` in a text, a quoted name or a comment is none. Each literal has a blank on both sides, so that it is no part of a
word, number or mark beside it. The gateway has no parameters; statements that differ in literals alone share a plan
there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Integral
from uuid import UUID

from tidemark.errors import DataError, InterfaceError, ProgrammingError

_TOKEN = re.compile(
    r"""
    (?P<text>
        [rR]'[^']*' | [rR]"[^"]*"                              # raw texts, in which a backslash is itself
      | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*"                  # a doubled quote is two tokens
    )
    | (?P<blank> \s+ | --(?:\\\n|[^\r\n])* )                   # a comment goes on after a backslash
    | \w+                                                     # a word: what follows is no raw text
    | `[^`]*`
    | (?P<comment>/\*)
    | (?P<parameter>\?)
    | (?P<open>['"`])                                          # of a text that does not end
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_BIGINT_MAX = 2**63 - 1
_JOINED = (("parameter", "parameter"), ("parameter", "text"), ("text", "parameter"))
_DIGITS = 38
"""The most digits that a decimal of SQL has."""


def bind(sql: str, parameters: Sequence[object]) -> str:
    """The statement with literals.

    Raises:
        ProgrammingError: the numbers of `?` and of parameters differ, a text or comment does not end, or a `?` is
            beside another one or a text: SQL joins texts that follow each other to one.
        InterfaceError: the parameters are no sequence; as `literal`.
        DataError: as `literal`.
    """
    if isinstance(parameters, str | bytes | Mapping | Set):
        raise InterfaceError(f"parameters are a list or tuple of values, not {type(parameters).__name__}")
    parts, at, values, before = list[str](), 0, list(parameters), ""
    while (token := _TOKEN.match(sql, at)) is not None:
        kind = token.lastgroup or ""
        if kind == "open":
            raise ProgrammingError(f"the text that begins at character {at} does not end")
        end = _end_of_comment(sql, at) if kind == "comment" else token.end()
        if (before, kind) in _JOINED:
            raise ProgrammingError(
                f"before character {at}, a ? follows a text or another ?, or a text follows a ?, and SQL would make "
                "one text of both: write a comma or an operator between"
            )
        if kind == "parameter":
            if not values:
                raise ProgrammingError(f"the statement has more ? than the {len(parameters)} parameters")
            parts.append(f" {literal(values.pop(0))} ")
        else:
            parts.append(sql[at:end])
        if kind not in ("blank", "comment"):
            before = kind
        at = end
    if values:
        raise ProgrammingError(f"there are {len(parameters)} parameters and {len(parameters) - len(values)} ? for them")
    return "".join(parts)


def literal(value: object) -> str:
    """The value as a literal.

    Raises:
        InterfaceError: there is no literal for such values.
        DataError: this one is out of range.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case Integral():
            return _integer(int(value))
        case float():
            return f"CAST('{_float(value)}' AS DOUBLE)"
        case Decimal():
            return _decimal(value)
        case str():
            return _text(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime() if value.utcoffset() is None:
            return f"TIMESTAMP_NTZ'{value.replace(tzinfo=None).isoformat(' ')}'"
        case datetime():
            return f"TIMESTAMP'{_in_utc(value).isoformat(' ')}Z'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case UUID():
            return f"'{value}'"
    raise InterfaceError(f"a parameter of type {type(value).__name__} has no literal: convert it first")


def _integer(value: int) -> str:
    """Spark reads digits as INT where they fit, else as BIGINT."""
    if 0 <= value <= _BIGINT_MAX:
        return str(value)
    if -_BIGINT_MAX <= value < 0:
        return f"({value})"
    if value == -_BIGINT_MAX - 1:
        return f"CAST('{value}' AS BIGINT)"
    return _decimal(Decimal(value))


def _float(value: float) -> str:
    return "NaN" if math.isnan(value) else float.__repr__(value).replace("inf", "Infinity")


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise DataError(f"{value} is no decimal of SQL")
    exponent = int(value.as_tuple().exponent)
    if value.adjusted() >= _DIGITS or -exponent > _DIGITS or value.adjusted() - min(exponent, 0) >= _DIGITS:
        raise DataError(f"a decimal has at most {_DIGITS} digits, and a parameter has more")
    text = format(value, "f")
    return f"({text}BD)" if value.is_signed() else f"{text}BD"


def _in_utc(value: datetime) -> datetime:
    """The time in UTC, without its zone. Raises DataError."""
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise DataError(f"{value} is before year 1 or after year 9999 in UTC") from None


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError("a text with half of a surrogate pair is no text of SQL") from None
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _end_of_comment(sql: str, at: int) -> int:
    """The position after the comment that begins at `at`; comments may hold comments."""
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(sql, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise ProgrammingError(f"the comment that begins at character {at} does not end")
