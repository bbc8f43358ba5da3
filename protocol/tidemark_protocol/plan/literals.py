"""Validation of literals: whether a text is the canonical form of a value of its type (see expr.Literal)."""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from typing import Any

from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.types import INTEGRAL_WIDTH, SqlType

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?[0-9]+(?:\.([0-9]+))?")
_FLOAT = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?|NaN|-?Infinity")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
_HEX = re.compile(r"([0-9a-fA-F]{2})*")
# Spark casts these strings to a date or timestamp relative to the current time (or the Unix epoch).
_SPECIAL_TIMES = ("epoch", "now", "today", "tomorrow", "yesterday")
# The characters that Spark trims around them: Java's trim removes more than Python's strip.
_BLANKS = "".join(map(chr, range(0x21)))


def is_valid(literal: Literal) -> bool:
    """Whether the value is NULL, or canonical text of a value of the type."""
    return literal.value is None or _is_value(literal.value, literal.type)


def is_special_time(text: str) -> bool:
    """Whether a cast of the text to a date or timestamp would depend on the current time (or be the epoch)."""
    return text.strip(_BLANKS).lower().startswith(_SPECIAL_TIMES)


def nested_text(value: Any) -> str:
    """The canonical text of a nested value: lists of None, of canonical texts and of such lists, as JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def nested_value(text: str) -> Any:
    """The value that `nested_text` wrote; raises ValueError."""
    return json.loads(text)


def parts_of(literal: Literal) -> tuple[Literal, ...]:
    """The elements of an array, or the values of the fields of a struct, as literals. The literal must not be NULL."""
    assert literal.value is not None, "NULL has no parts"
    value, of = nested_value(literal.value), literal.type
    types = of.children * len(value) if of.is_array else of.children
    texts = (nested_text(v) if isinstance(v, list) else v for v in value)
    return tuple(Literal(text, t) for text, t in zip(texts, types, strict=True))


def _is_nested_value(value: str, of: SqlType) -> bool:
    try:
        parsed = nested_value(value)
    except (ValueError, RecursionError):
        return False
    if not isinstance(parsed, list) or nested_text(parsed) != value:
        return False
    return _are_parts(parsed, of)


def _are_parts(parsed: Any, of: SqlType) -> bool:
    if not of.is_nested:
        return isinstance(parsed, str) and _is_value(parsed, of)
    if not isinstance(parsed, list) or (of.is_struct and len(parsed) != len(of.children)):
        return False
    types = of.children * len(parsed) if of.is_array else of.children
    return all(part is None or _are_parts(part, t) for part, t in zip(parsed, types, strict=True))


def _is_value(value: str, of: SqlType) -> bool:
    if of.is_nested:
        return _is_nested_value(value, of)
    if of.is_integral:
        bound = 1 << (INTEGRAL_WIDTH[of.name] - 1)
        return bool(_INTEGER.fullmatch(value)) and len(value) <= 20 and -bound <= int(value) < bound
    if of.is_decimal:
        return _is_decimal(value, of)
    if of.is_floating:
        return bool(_FLOAT.fullmatch(value)) and len(value) <= 400
    if of.name == "boolean":
        return value in ("true", "false")
    if of.name == "binary":
        return bool(_HEX.fullmatch(value))
    if of.name == "date":
        return bool(_DATE.fullmatch(value)) and _parses(date, value)
    if of.name in ("timestamp", "timestamp_ntz"):
        return bool(_TIMESTAMP.fullmatch(value)) and _parses(datetime, value)
    return of.name == "string" or (bool(_INTEGER.fullmatch(value)) and len(value) <= 20 and abs(int(value)) < 1 << 63)


def _is_decimal(value: str, of: SqlType) -> bool:
    found = _DECIMAL.fullmatch(value)
    if not found:
        return False
    digits = value.lstrip("-").replace(".", "").lstrip("0")
    return len(found[1] or "") == of.scale and len(digits) <= of.precision


def _parses(kind: type[date], value: str) -> bool:
    try:
        kind.fromisoformat(value)
    except ValueError:
        return False
    return True
