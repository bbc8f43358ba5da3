"""The cast matrix: the casts that Spark allows in ANSI mode, and the errors that they can raise.

    cast(int as bigint)            allowed, never fails
    cast(bigint as int)            allowed, CAST_OVERFLOW
    cast(string as int)            allowed, CAST_INVALID_INPUT
    cast(date as int)              not allowed
    cast(array<T> as array<U>)     as cast(T as U)

Binary to string is left out, although Spark allows it: the bytes may not be text. `decode` takes an encoding.
"""

from __future__ import annotations

from tidemark_protocol.decimals import whole_digits
from tidemark_protocol.types import INTEGRAL_WIDTH, SqlType

ARITHMETIC_OVERFLOW = "ARITHMETIC_OVERFLOW"
CAST_INVALID_INPUT = "CAST_INVALID_INPUT"
CAST_OVERFLOW = "CAST_OVERFLOW"
OUT_OF_RANGE = "NUMERIC_VALUE_OUT_OF_RANGE"

_NEVER: frozenset[str] = frozenset()
_TIMESTAMPS = ("timestamp", "timestamp_ntz")


def cast_errors(source: SqlType, target: SqlType) -> frozenset[str] | None:
    """The error conditions that the cast can raise; None where there is no such cast."""
    if source == target:
        return _NEVER
    if source.is_nested or target.is_nested:
        return _nested(source, target)
    if source.name == "string":
        return _from_string(target)
    if source.is_numeric:
        return _from_number(source, target)
    if source.name == "boolean":
        return _from_boolean(target)
    if source.name == "date":
        return {"string": _NEVER}.get(
            target.name, frozenset({ARITHMETIC_OVERFLOW}) if target.name in _TIMESTAMPS else None
        )
    if source.name in _TIMESTAMPS:
        return _from_timestamp(source, target)
    return None


def cast_may_be_null(source: SqlType, target: SqlType) -> bool:
    """Whether the cast of a non-NULL value can be NULL without an error: infinities and NaN have no decimal."""
    return source.is_floating and target.is_decimal


def _nested(source: SqlType, target: SqlType) -> frozenset[str] | None:
    """Part by part: the elements of an array, the fields of a struct by position; as text, if all parts have a text."""
    if target.name == "string":
        parts = [cast_errors(child, target) for child in source.children]
    elif source.name == target.name and len(source.children) == len(target.children):
        parts = [cast_errors(a, b) for a, b in zip(source.children, target.children, strict=True)]
    else:
        return None
    return None if None in parts else frozenset(code for part in parts for code in part or ())


def _from_string(target: SqlType) -> frozenset[str] | None:
    if target.name == "binary":
        return _NEVER
    if target.is_decimal:
        return frozenset({CAST_INVALID_INPUT, OUT_OF_RANGE})
    if target.is_numeric or target.name in ("boolean", "date", *_TIMESTAMPS):
        return frozenset({CAST_INVALID_INPUT})
    return None


def _from_boolean(target: SqlType) -> frozenset[str] | None:
    if target.is_decimal:
        return _NEVER if whole_digits(target) >= 1 else frozenset({OUT_OF_RANGE})
    return _NEVER if target.is_numeric or target.name == "string" else None


def _from_timestamp(source: SqlType, target: SqlType) -> frozenset[str] | None:
    if target.name in ("string", "date", *_TIMESTAMPS):
        return _NEVER
    if source.name != "timestamp" or not target.is_numeric:
        return None
    if target.is_decimal:
        return frozenset({OUT_OF_RANGE})
    return _NEVER if target.is_floating or target.name == "bigint" else frozenset({CAST_OVERFLOW})


def _from_number(source: SqlType, target: SqlType) -> frozenset[str] | None:
    if target.name in ("string", "boolean") or target.is_floating:
        return _NEVER
    if target.is_decimal:
        return _NEVER if _fits_decimal(source, target) else frozenset({OUT_OF_RANGE})
    if target.is_integral:
        return _NEVER if _fits_integer(source, target) else frozenset({CAST_OVERFLOW})
    if target.name == "timestamp":
        return frozenset({CAST_INVALID_INPUT if source.is_floating else ARITHMETIC_OVERFLOW})
    return None


def _fits_decimal(source: SqlType, target: SqlType) -> bool:
    if source.is_floating:
        return False
    carry = 1 if source.scale > target.scale else 0  # 9.99 rounds to 10.0
    return whole_digits(target) >= whole_digits(source) + carry


def _fits_integer(source: SqlType, target: SqlType) -> bool:
    if source.is_integral:
        return INTEGRAL_WIDTH[source.name] <= INTEGRAL_WIDTH[target.name]
    return source.is_decimal and whole_digits(source) < whole_digits(target)
