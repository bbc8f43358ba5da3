"""`= ANY (array)` and `<> ALL (array)` of PostgreSQL's dialect as lists of Spark, which know the same three truths.

    x = ANY (ARRAY[a, 7, NULL])         x IN (a, 7, NULL)
    x <> ALL ('{1,NULL}'::int[])        NOT x IN (1, NULL)
    x = ANY ('{}')                      x IS NULL AND FALSE: nothing equals an element, not even NULL
    x = ANY (NULL::text[])              x IN (NULL)

An array without a type has that of `x`; elements without a type are texts. The lists come before admission.py, which
checks `x` and the elements. Any other array stays, and admission.py refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any

from sqlglot import exp

from tidemark_planner.dialects.admission import NUMBERS
from tidemark_planner.dialects.errors import NotTranslated
from tidemark_planner.dialects.number_kinds import TIMES, Kind, Numbers
from tidemark_planner.dialects.postgres_times import COMPARISONS
from tidemark_planner.dialects.time_texts import NoTime, date_of

MAX_ELEMENTS = 10_000
_MAX_DIGITS = 38
_SAME = ("text", "boolean", "date", *TIMES)
_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^,{}"\\\s](?:[^,{}"\\]*[^,{}"\\\s])?))\s*([,}])', re.ASCII | re.DOTALL)
_EMPTY = re.compile(r"\s*\{\s*\}\s*", re.ASCII)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:[.]\d*)?|[.]\d+)", re.ASCII)
_DOUBLE = re.compile(rf"{_NUMBER.pattern}(?:[eE][+-]?\d{{1,3}})?", re.ASCII)
_SPECIAL = {
    "nan": "NaN",
    **dict.fromkeys(("inf", "infinity"), "Infinity"),
    **dict.fromkeys(("-inf", "-infinity"), "-Infinity"),
}
_BOOLEANS = {"t": True, "true": True, "f": False, "false": False}
_Type = exp.DataType.Type
_BITS = {_Type.SMALLINT: 15, _Type.INT: 31, _Type.BIGINT: 63}
_BITS_OF = {"tinyint": 15, "smallint": 15, "int": 31, "bigint": 63}
"""The bits of values, by the type of a column: a tinyint is a smallint to clients."""
_OF_KIND: dict[Kind, str] = {
    "text": "TEXT",
    "decimal": "DECIMAL",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
}


def as_lists(tree: exp.Expression, numbers: Numbers) -> None:
    """Replace comparisons with elements of arrays by lists, from the leaves up. Raises NotTranslated."""
    for node in reversed(list(tree.walk())):
        found = _quantified(node.expression) if isinstance(node, COMPARISONS) else None
        if found is None:
            continue
        of_all, array = found
        if not isinstance(node, exp.NEQ if of_all else exp.EQ):
            raise _refused("ANY and ALL in another form than = ANY (array) and <> ALL (array)", node)
        node.replace(_Comparison(node.this, numbers).with_elements(array, of_all))


def _quantified(node: Any) -> tuple[bool, Any] | None:
    """Whether it is ALL, and the array or query; None: the node is a plain value."""
    if isinstance(node, exp.Any):
        return False, node.this.unnest() if isinstance(node.this, exp.Paren) else node.this
    if isinstance(node, exp.Anonymous) and node.name.upper() in ("ALL", "SOME") and len(node.expressions) == 1:
        return node.name.upper() == "ALL", node.expressions[0]
    return (True, node.this) if isinstance(node, exp.All) else None


class _Comparison:
    """The comparison of `left` with the elements of an array."""

    def __init__(self, left: Any, numbers: Numbers) -> None:
        self._left, self._numbers = left, numbers
        self._kind = numbers.kind(left)

    def with_elements(self, array: Any, of_all: bool) -> exp.Expression:
        """Raises NotTranslated."""
        left = self._left.copy()
        if isinstance(array, exp.Query):
            query = array if isinstance(array, exp.Subquery) else exp.Subquery(this=array.copy())
            found: exp.Expression = exp.In(this=left, query=query.copy())
            return exp.Not(this=found) if of_all else found
        elements, kind = self._elements(array)
        if not (self._kind == kind and kind in _SAME) and not (self._kind in NUMBERS and kind in NUMBERS):
            beside = f"{self._kind or 'an unknown type'} beside an array of {kind or 'an unknown type'}"
            raise _refused(f"{beside} (cast one of them)", array)
        if elements:
            found = exp.In(this=left, expressions=elements)
            return exp.Not(this=found) if of_all else found
        nothing, answer = exp.Is(this=left, expression=exp.Null()), exp.Boolean(this=of_all)
        return exp.paren((exp.Or if of_all else exp.And)(this=nothing, expression=answer))

    def _elements(self, array: Any) -> tuple[list[exp.Expression], Kind]:
        """The elements and their kind. Raises NotTranslated."""
        array = array.unnest()
        if isinstance(array, exp.Null):
            return [exp.Null()], self._kind
        if isinstance(array, exp.Literal) and array.is_string:
            return self._untyped(array)
        if isinstance(array, exp.Array):
            return _made(array), self._common_kind(array)
        to = _element_type(array)
        if to is None:
            raise _refused("an array that is no ARRAY[...] and no text with a type", array)
        return _typed(array.this.unnest(), to, array), self._numbers.kind(exp.Cast(this=exp.Null(), to=to))

    def _untyped(self, array: Any) -> tuple[list[exp.Expression], Kind]:
        """The elements of a text that has the type of the other side."""
        texts = _texts(array)
        if self._kind != "integer":
            to = exp.DataType.build(_OF_KIND.get(self._kind, "TEXT"))
            return [_value(each, to, array) for each in texts], self._kind if self._kind in _OF_KIND else None
        bits = _BITS_OF.get(self._numbers.integer_type(self._left) or "", 0)
        try:
            return [_integer(each, bits or 15, array) for each in texts], "integer"
        except NotTranslated:
            if bits:
                raise
            raise _refused("an array without a type beside such integers (cast it to bigint[])", array) from None

    def _common_kind(self, array: Any) -> Kind:
        """The kind of the elements of ARRAY[...]."""
        known = [each for each in array.expressions if not isinstance(each, exp.Null)]
        kinds = {self._numbers.kind(each) for each in known}
        if not array.expressions:
            raise _refused("ARRAY[] without a type (cast it to text[] or the like)", array)
        if len(kinds) > 1 and kinds <= set(NUMBERS):
            return "double" if "double" in kinds else "decimal"
        return kinds.pop() if len(kinds) == 1 else None if kinds else "text"


def _made(array: Any) -> list[exp.Expression]:
    """The elements of ARRAY[...]. Raises NotTranslated."""
    for each in array.expressions:
        if isinstance(each, exp.Array | exp.Query | exp.Slice):
            raise _refused("an array of arrays or of a query", array)
    if len(array.expressions) > MAX_ELEMENTS:
        raise _refused(f"an array of more than {MAX_ELEMENTS} elements", array)
    return [each.copy() for each in array.expressions]


def _element_type(node: Any) -> exp.DataType | None:
    """The type of the elements of a cast to an array; None: the node is no such cast."""
    if not isinstance(node, exp.Cast) or node.to.this != _Type.ARRAY or len(node.to.expressions) != 1:
        return None
    found: exp.DataType = node.to.expressions[0].copy()
    return exp.DataType.build("TEXT") if found.this == _Type.VARCHAR and not found.expressions else found


def _typed(array: Any, to: exp.DataType, node: Any) -> list[exp.Expression]:
    """The elements of an array that is cast to an array of a type. Raises NotTranslated."""
    if isinstance(array, exp.Null):
        return [exp.Null()]
    if isinstance(array, exp.Literal) and array.is_string:
        return [_value(each, to, node) for each in _texts(array)]
    if isinstance(array, exp.Array):
        return [_cast(each, to, node) for each in _made(array)]
    inner = _element_type(array)
    if inner is None:
        raise _refused("an array that is no ARRAY[...] and no text with a type", node)
    elements = _typed(array.this.unnest(), inner, node)
    if inner == to or _BITS.get(inner.this, 64) <= _BITS.get(to.this, 0):
        return elements
    return [_cast(each, to, node) for each in elements]


def _cast(element: Any, to: exp.DataType, node: Any) -> exp.Expression:
    if isinstance(element, exp.Null):
        return element
    if isinstance(element, exp.Literal) and element.is_string:
        return _value(element.this, to, node)
    return exp.Cast(this=element, to=to.copy())


def _texts(literal: Any) -> list[str | None]:
    """The texts of the elements; None: NULL. Raises NotTranslated for other arrays than those of one dimension."""
    text = literal.this
    if _EMPTY.fullmatch(text):
        return []
    at = len(text) - len(text.lstrip(" \t\n\r\v\f"))
    found, end = list[str | None](), ","
    if text[at : at + 1] != "{":
        raise _malformed(literal)
    at += 1
    while end == ",":
        item = _ITEM.match(text, at)
        if item is None or len(found) == MAX_ELEMENTS:
            raise _malformed(literal)
        quoted, plain, end = item.groups()
        found.append(_ESCAPE.sub(r"\1", quoted) if plain is None else None if plain.upper() == "NULL" else plain)
        at = item.end()
    if text[at:].strip(" \t\n\r\v\f"):
        raise _malformed(literal)
    return found


def _malformed(literal: Any) -> NotTranslated:
    return _refused(f"an array that is not written as {{1,2}}, with at most {MAX_ELEMENTS} elements,", literal)


def _value(text: str | None, to: exp.DataType, node: Any) -> exp.Expression:
    """An element from its text. Raises NotTranslated where PostgreSQL fails, or the type is not admitted."""
    if text is None:
        return exp.Null()
    if to.this in _BITS:
        return _integer(text, _BITS[to.this], node)
    read = _READ.get(to.this)
    if read is None or (to.expressions and to.this != _Type.DECIMAL):
        raise _refused(f"an array of {to.sql('postgres').lower()}", node)
    try:
        return read(text, to)
    except (ValueError, NoTime, KeyError):
        raise _refused(f"an element {text!r:.40} of an array of {to.sql('postgres').lower()}", node) from None


def _integer(text: str | None, bits: int, node: Any) -> exp.Expression:
    if text is None:
        return exp.Null()
    if _INTEGER.fullmatch(text) is None or not -(1 << bits) <= int(text) < 1 << bits:
        raise _refused(f"an element {text!r:.40} of an array of integers of {(bits + 1) // 8} bytes", node)
    return exp.Literal.number(int(text))


def _decimal(text: str, to: exp.DataType) -> exp.Expression:
    if _NUMBER.fullmatch(text) is None or len(text.lstrip("+-0")) > _MAX_DIGITS:
        raise ValueError(text)
    if to.expressions:
        return exp.Cast(this=exp.Literal.string(text), to=to.copy())
    value = Decimal(text)
    digits = format(abs(value), "f")
    number = exp.Literal.number(digits if "." in digits else f"{digits}.0")
    return exp.Neg(this=number) if value < 0 else number


def _double(text: str, to: exp.DataType) -> exp.Expression:
    special = _SPECIAL.get(text.lower().lstrip("+"))
    if special is None:
        value = float(text) if _DOUBLE.fullmatch(text) else float("nan")
        if not isfinite(value) or (value == 0 and re.search("[1-9]", text.lower().partition("e")[0])):
            raise ValueError(text)
    return exp.Cast(this=exp.Literal.string(special or text), to=to.copy())


def _date(text: str, to: exp.DataType) -> exp.Expression:
    return exp.Cast(this=exp.Literal.string(date_of(text)), to=to.copy())


_READ: dict[Any, Callable[[str, exp.DataType], exp.Expression]] = {
    _Type.TEXT: lambda text, to: exp.Literal.string(text),
    _Type.BOOLEAN: lambda text, to: exp.Boolean(this=_BOOLEANS[text.lower()]),
    _Type.DECIMAL: _decimal,
    _Type.DOUBLE: _double,
    _Type.DATE: _date,
    _Type.TIMESTAMP: lambda text, to: exp.Cast(this=exp.Literal.string(text), to=to.copy()),
    _Type.TIMESTAMPTZ: lambda text, to: exp.Cast(this=exp.Literal.string(text), to=to.copy()),
}


def _refused(what: str, node: Any) -> NotTranslated:
    return NotTranslated(f"{what} of dialect postgres is not known to mean the same in Spark", node)
