"""Parameters of statements: each `?` becomes a literal of Spark's SQL, which no value can leave.

    SELECT * FROM t WHERE name = ? AND note <> '?' -- why?      ("O'Hara",)
    SELECT * FROM t WHERE name = 'O\\'Hara' AND note <> '?' -- why?

A `?` in a text, a quoted name or a comment is none. The gateway has no parameters; statements that differ in literals
alone share a plan there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from tidemark.errors import DataError, InterfaceError, ProgrammingError

_TOKEN = re.compile(
    r"""
    (?P<skipped>
        [rR]'[^']*' | [rR]"[^"]*"                              # raw texts, in which a backslash is itself
      | [^\W]+                                                 # a word: what follows is no raw text
      | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`          # texts, names; a doubled quote is two tokens
      | --(?:\\\n|[^\r\n])*                                    # a comment goes on after a backslash
    )
    | (?P<comment>/\*)
    | (?P<parameter>\?)
    | (?P<open>['"`])                                          # of a text that does not end
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_INT_MAX, _BIGINT_MAX = 2**31 - 1, 2**63 - 1


def bind(sql: str, parameters: Sequence[object]) -> str:
    """The statement with literals.

    Raises:
        ProgrammingError: the numbers of `?` and of parameters differ, or a text or comment does not end.
        InterfaceError, DataError: as `literal`.
    """
    parts, at, values = list[str](), 0, list(parameters)
    while (token := _TOKEN.match(sql, at)) is not None:
        if token["open"]:
            raise ProgrammingError(f"the text that begins at character {at} does not end")
        if token["parameter"]:
            if not values:
                raise ProgrammingError(f"the statement has more ? than the {len(parameters)} parameters")
            parts.append(literal(values.pop(0)))
        end = _end_of_comment(sql, at) if token["comment"] else token.end()
        if not token["parameter"]:
            parts.append(sql[at:end])
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
        case int():
            return _integer(value)
        case float():
            return f"CAST('{_float(value)}' AS DOUBLE)"
        case Decimal():
            return _decimal(value)
        case str():
            return _text(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime() if value.tzinfo is None:
            return f"TIMESTAMP_NTZ'{value.isoformat(' ')}'"
        case datetime():
            return f"TIMESTAMP'{value.astimezone(UTC).replace(tzinfo=None).isoformat(' ')}Z'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case UUID():
            return f"'{value}'"
    raise InterfaceError(f"a parameter of type {type(value).__name__} has no literal: convert it first")


def _integer(value: int) -> str:
    if abs(value) <= _INT_MAX:
        return f"({value})" if value < 0 else str(value)
    if -_BIGINT_MAX - 1 <= value <= _BIGINT_MAX:
        return f"CAST('{value}' AS BIGINT)" if value < 0 else f"{value}L"
    return _decimal(Decimal(value))


def _float(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value).replace("inf", "Infinity")


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise DataError(f"{value} is no decimal of SQL")
    text = format(value, "f")
    if len(text.lstrip("-0.").replace(".", "")) > 38 or -int(value.as_tuple().exponent) > 38:
        raise DataError(f"a decimal has at most 38 digits, and {text:.60} has more")
    return f"({text}BD)" if value < 0 else f"{text}BD"


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError("a text with half of a surrogate pair is no text of SQL") from None
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _end_of_comment(sql: str, at: int) -> int:
    """After the comment that begins at `at`; comments may hold comments."""
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(sql, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise ProgrammingError(f"the comment that begins at character {at} does not end")
