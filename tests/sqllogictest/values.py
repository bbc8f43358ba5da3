"""One value against the text that a file has for it.

Files were written by engines that print alike, but not the same: 1.5 and 1.500, true, t and 1, a timestamp with and
without its zone. `printed` is SQLite's way, which hashes need; `same` knows the others.
"""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from typing import Any

_NUMBER = re.compile(r"[+-]?(\d+\.?(\d*)|\.(\d+))([eE][+-]?\d+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE)
_ZONE = re.compile(r"(\+00(:?00)?|Z| UTC)$")
_TRUE, _FALSE = frozenset({"true", "t", "1"}), frozenset({"false", "f", "0"})
# So many decimals or more are what was left of a longer number.
_ROUNDED_FROM = 3


def printed(value: Any, kind: str) -> str:
    """The value in a column of type T, I or R, as SQLite's own runner prints it."""
    if value is None:
        return "NULL"
    if kind == "I" and isinstance(value, bool | int | Decimal | float) and _finite(value):
        return str(int(value))
    if kind == "R" and isinstance(value, bool | int | Decimal | float):
        return f"{float(value):.3f}"
    text = _text(value)
    return "".join(c if " " <= c <= "~" else "@" for c in text) if text else "(empty)"


def has_value(value: Any, kind: str, expected: str) -> bool:
    """Whether the text says this value, in any engine's way of printing."""
    expected_text = expected.strip()
    if expected_text == printed(value, kind):
        return True
    if value is None:
        return expected_text.lower() == "null"
    if expected_text.startswith(("<REGEX>:", "<!REGEX>:")):  # DuckDB's
        return (
            re.fullmatch(expected_text.partition(":")[2], _text(value), re.DOTALL) is not None
        ) == expected_text.startswith("<R")
    if isinstance(value, bool):
        return expected_text.lower() in (_TRUE if value else _FALSE)
    if isinstance(value, int | float | Decimal):
        return _same_number(value, expected_text)
    if isinstance(value, datetime.date):
        return _moment(_text(value)) == _moment(expected_text)
    if isinstance(value, list | dict | tuple):
        return _squeezed(expected_text) in (_squeezed(_text(value)), _squeezed(_row(value)))
    return _same_text(_text(value), expected_text)


def _same_text(text: str, message: str) -> bool:
    plain = " ".join(text.split())
    return plain == " ".join(message.replace("·", " ").split()) or (not plain and message == "(empty)")


def _same_number(value: int | float | Decimal, message: str) -> bool:
    found = _NUMBER.fullmatch(message)
    if not found:
        return False
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(message)) == str(value)
    if not math.isfinite(float(message)):
        return False
    exact, number = Decimal(value), Decimal(message)
    decimals = len(found[2] or found[3] or "")
    near = abs(number) * Decimal("1e-9") if isinstance(value, float) or decimals else Decimal(0)
    if decimals >= _ROUNDED_FROM and not found[4]:
        near = max(near, Decimal(10) ** -decimals * Decimal("0.5001"))
    return abs(exact - number) <= near


def _finite(value: Any) -> bool:
    return not isinstance(value, float | Decimal) or math.isfinite(value)


def _text(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.15g}"
        case Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(" ")
        case bytes():
            return value.hex()
        case dict():
            return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join("NULL" if v is None else _text(v) for v in value) + "]"
    return str(value)


def _row(value: Any) -> str:
    """A struct as PostgreSQL prints it: (1,,x)."""
    values = value.values() if isinstance(value, dict) else value
    return "(" + ",".join("" if v is None else _text(v) for v in values) + ")"


def _moment(text: str) -> str:
    """A date or time without zone, without a fraction of nothing, and without a midnight."""
    plain = _ZONE.sub("", text.replace("T", " ")).strip()
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    return plain.removesuffix(" 00:00:00")


def _squeezed(text: str) -> str:
    """Arrays of all engines: [a, b], {a,b}, ['a', 'b']."""
    return re.sub(r"[\s'\"]", "", text).replace("{", "[").replace("}", "]").lower()
