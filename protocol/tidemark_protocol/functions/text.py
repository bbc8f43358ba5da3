"""More functions of text: searching, padding, regular expressions, digests.

A function that makes text longer takes a literal length, or a count that is an error where it is large, and must not
contain another such call, so rows stay small.
"""

from __future__ import annotations

import re

from tidemark_protocol.functions.call_errors import NOTHING, Errors, always
from tidemark_protocol.functions.call_types import Signature, fixed, of_names
from tidemark_protocol.functions.entry import Function, maybe
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, walk
from tidemark_protocol.types import BIGINT, BOOLEAN, INT, STRING, SqlType

BINARY = SqlType("binary")
INVALID_PATTERN = "INVALID_PARAMETER_VALUE"
MAX_CHARACTERS = 10_000
MAX_REPEATS = 1_000
_GROWING = frozenset({"lpad", "rpad", "repeat"})
# Patterns that all regular expression engines treat alike: literal characters, `.`, ^ first and $ last.
_PLAIN_PATTERN = re.compile(r"\^?[\w\s.,:;@%/#=<>!&~\"'-]*\$?", re.ASCII)


def padded(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return fixed(STRING, STRING, INT, STRING)(arguments, result) and _is_bounded(arguments, MAX_CHARACTERS)


def repeated(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    return fixed(STRING, STRING, INT)(arguments, result) and _is_bounded(arguments, MAX_REPEATS)


def _is_bounded(arguments: tuple[ScalarExpr, ...], most: int) -> bool:
    count = arguments[1]
    small = _is_at_most(count, most) or _is_guarded(count, most)
    inside = (n for a in arguments for n in walk(a))
    return small and not any(isinstance(n, Call) and n.function in _GROWING for n in inside)


def _is_at_most(count: ScalarExpr, most: int) -> bool:
    return isinstance(count, Literal) and count.value is not None and int(count.value) <= most


def _is_guarded(count: ScalarExpr, most: int) -> bool:
    """Whether the count is an error where it is larger: CASE WHEN CASE WHEN n > 1000 THEN raise_error(...) ELSE true
    END THEN n END.
    """
    match count:
        case Call(
            "case", (Call("case", (Call(">", (tested, limit)), Call("raise_error"), Literal("true"))), value)
        ) if tested == value:
            return _is_at_most(limit, most)
    return False


def pattern_errors(call: Call) -> frozenset[str]:
    """A pattern may be invalid; a plain one is known to be valid."""
    pattern = call.arguments[1]
    plain = isinstance(pattern, Literal) and (pattern.value is None or _PLAIN_PATTERN.fullmatch(pattern.value))
    return NOTHING if plain else frozenset({INVALID_PATTERN})


def _text(*parameters: SqlType) -> Signature:
    return fixed(STRING, *parameters)


def _regexp_replace(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """regexp_replace from a literal position on."""
    return _text(STRING, STRING, STRING, INT)(arguments, result) and isinstance(arguments[3], Literal)


def _concat_ws(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """concat_ws: texts, and arrays of texts."""
    texts = all(a.type in (STRING, SqlType.array(STRING)) for a in arguments[1:])
    return texts and arguments[0].type == STRING == result


def _levenshtein(arguments: tuple[ScalarExpr, ...], result: SqlType) -> bool:
    """levenshtein of two texts; -1 beyond the third argument."""
    return fixed(INT, STRING, STRING)(arguments[:2], result) and all(a.type == INT for a in arguments[2:])


_INVALID: Errors = always(INVALID_PATTERN)
TEXT = (
    *(Function(n, 1, 1, _text(STRING)) for n in ("initcap", "soundex")),
    Function("ascii", 1, 1, fixed(INT, STRING)),
    Function("chr", 1, 1, _text(BIGINT)),
    Function("translate", 3, 3, _text(STRING, STRING, STRING)),
    Function("concat_ws", 2, None, _concat_ws),
    Function("instr", 2, 2, fixed(INT, STRING, STRING)),
    Function("locate", 3, 3, fixed(INT, STRING, STRING, INT)),
    Function("find_in_set", 2, 2, fixed(INT, STRING, STRING)),
    Function("levenshtein", 2, 3, _levenshtein),
    Function("substring_index", 3, 3, _text(STRING, STRING, INT)),
    Function("overlay", 4, 4, _text(STRING, STRING, INT, INT)),
    *(Function(n, 3, 3, padded) for n in ("lpad", "rpad")),
    Function("repeat", 2, 2, repeated),
    Function("rlike", 2, 2, fixed(BOOLEAN, STRING, STRING), pattern_errors),
    Function("regexp_extract", 3, 3, _text(STRING, STRING, INT), _INVALID),
    Function("regexp_replace", 4, 4, _regexp_replace, _INVALID),
    Function("regexp_instr", 3, 3, fixed(INT, STRING, STRING, INT), _INVALID),
    *(Function(n, 1, 1, of_names(INT, "string", "binary")) for n in ("bit_length", "octet_length")),
    Function("hex", 1, 1, of_names(STRING, "bigint", "string", "binary")),
    Function("unhex", 1, 1, fixed(BINARY, STRING), nullable=maybe),
    *(Function(n, 1, 1, _text(BINARY)) for n in ("md5", "sha1")),
    Function("sha2", 2, 2, _text(BINARY, INT), nullable=maybe),
    Function("crc32", 1, 1, fixed(BIGINT, BINARY)),
)
