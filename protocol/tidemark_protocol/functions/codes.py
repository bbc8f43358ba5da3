"""Functions of codes: hashes, encodings, URLs, digits in other bases, text in a literal format.

A function that can make a text much longer than its arguments takes a literal format, which bounds the length.
"""

from __future__ import annotations

import re

from tidemark_protocol.functions.call_errors import always
from tidemark_protocol.functions.call_types import Signature, fixed, literal_text, literal_whole, types_of
from tidemark_protocol.functions.entry import Function, first_argument, maybe, not_null
from tidemark_protocol.functions.nested import STRINGS
from tidemark_protocol.functions.text import INVALID_PATTERN
from tidemark_protocol.plan.expr import Literal, ScalarExpr
from tidemark_protocol.types import BIGINT, BOOLEAN, DOUBLE, INT, INTERVAL_TYPES, STRING, SqlType

BINARY = SqlType("binary")
CHARSETS = frozenset("US-ASCII ISO-8859-1 UTF-8 UTF-16BE UTF-16LE UTF-16 UTF-32".split())
URL_PARTS = frozenset("HOST PATH QUERY REF PROTOCOL FILE AUTHORITY USERINFO".split())
_MAX_DECIMALS = 100
# Java's format directives whose number and width do not depend on rows.
_FORMAT = re.compile(r"([^%]|%%|%([1-9]\$)?[-+ 0,(#]{0,3}[0-9]{0,3}(\.[0-9]{1,2})?[sdfxXoeEgGcbn])*", re.DOTALL)
_SHOWN = frozenset("string boolean tinyint smallint int bigint float double decimal".split())
# Digits of a number format, with at most one decimal point; grouping and signs take no digits.
_NUMBER_FORMAT = re.compile(r"(MI|S)?[$L]?([09G,]*)(?:[.D]([09]*))?(PR|MI|S)?", re.IGNORECASE)


def number_format(text: str) -> SqlType | None:
    """The decimal type that a format of to_number or to_char describes; None where the format is not supported."""
    found = _NUMBER_FORMAT.fullmatch(text)
    if found is None:
        return None
    whole, scale = len(re.sub("[^09]", "", found[2])), len(found[3] or "")
    return SqlType("decimal", whole + scale, scale) if 1 <= whole + scale <= 38 else None


def _hashed(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return result == INT and all(t.name not in INTERVAL_TYPES for t in types_of(arguments))


def _hashed_long(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return result == BIGINT and _hashed(arguments, INT)


def _in_charset(result: SqlType, of: SqlType) -> Signature:
    def fits(arguments: tuple[ScalarExpr, ...], to: SqlType) -> bool:
        known = (literal_text(arguments[1]) or "").upper() in CHARSETS
        return known and to == result and types_of(arguments) == (of, STRING)

    return fits


def _chosen(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """elt: a number, and texts."""
    return result == STRING and types_of(arguments) == (INT, *[STRING] * (len(arguments) - 1))


def _with_decimals(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    digits = literal_whole(arguments[1])
    small = digits is not None and 0 <= digits <= _MAX_DECIMALS
    return small and arguments[0].type.is_numeric and result == STRING


def _formatted(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    known = literal_text(arguments[0])
    shown = all(t.name in _SHOWN for t in types_of(arguments[1:]))
    return result == STRING and shown and known is not None and _FORMAT.fullmatch(known) is not None


def _to_char(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    known = number_format(literal_text(arguments[1]) or "")
    return known is not None and arguments[0].type.is_decimal and result == STRING


def _to_number(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return arguments[0].type == STRING and result == number_format(literal_text(arguments[1]) or "")


def _part_of_url(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return set(types_of(arguments)) == {STRING} == {result} and literal_text(arguments[1]) in URL_PARTS


def _bit(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return arguments[0].type.is_integral and arguments[1].type == INT and result == SqlType("tinyint")


def _masked(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """mask: a text, and literal characters that stand for upper, lower, digits and all else; NULL leaves them."""
    signs = all(isinstance(a, Literal) and (a.value is None or len(a.value) == 1) for a in arguments[1:])
    return signs and set(types_of(arguments)) == {STRING} == {result}


_CODING = "MALFORMED_CHARACTER_CODING"
CODES = (
    Function("hash", 1, None, _hashed, nullable=not_null),
    Function("xxhash64", 1, None, _hashed_long, nullable=not_null),
    Function("base64", 1, 1, fixed(STRING, BINARY)),
    Function("unbase64", 1, 1, fixed(BINARY, STRING), always("CONVERSION_INVALID_INPUT")),
    Function("encode", 2, 2, _in_charset(BINARY, STRING), always(_CODING)),
    Function("decode", 2, 2, _in_charset(STRING, BINARY), always(_CODING)),
    Function("url_encode", 1, 1, fixed(STRING, STRING)),
    Function("url_decode", 1, 1, fixed(STRING, STRING), always("CANNOT_DECODE_URL")),
    Function("try_url_decode", 1, 1, fixed(STRING, STRING), nullable=maybe),
    Function("parse_url", 2, 3, _part_of_url, always("INVALID_URL"), maybe),
    Function("try_parse_url", 2, 3, _part_of_url, nullable=maybe),
    Function("luhn_check", 1, 1, fixed(BOOLEAN, STRING)),
    Function("jaro_winkler_similarity", 2, 2, fixed(DOUBLE, STRING, STRING)),
    Function("quote", 1, 1, fixed(STRING, STRING)),
    Function("mask", 5, 5, _masked, nullable=first_argument),
    Function("elt", 2, None, _chosen, always("INVALID_ARRAY_INDEX"), maybe),
    Function("conv", 3, 3, fixed(STRING, STRING, INT, INT), always("ARITHMETIC_OVERFLOW"), maybe),
    Function("getbit", 2, 2, _bit, always(INVALID_PATTERN)),
    Function("format_number", 2, 2, _with_decimals),
    Function("format_string", 1, None, _formatted, always("INVALID_PARAMETER_VALUE"), maybe),
    Function("to_char", 2, 2, _to_char, nullable=maybe),
    Function("to_number", 2, 2, _to_number, always("INVALID_FORMAT"), maybe),
    Function("try_to_number", 2, 2, _to_number, nullable=maybe),
    Function("regexp_extract_all", 3, 3, fixed(STRINGS, STRING, STRING, INT), always(INVALID_PATTERN)),
)
