"""Spark's expressions whose class alone does not say what they compute: calls of Java methods, and classes with a
field or a literal that selects the function.

    StaticInvoke(UrlCodec$, decode, s, true)           url_decode(s)             with false: try_url_decode(s)
    GetTimestamp(s, p) of timestamp_ntz                to_timestamp_ntz(s, p)
    Pi()                                               3.141592653589793
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.catalyst.spark_types import VOID, type_of
from tidemark_planner.errors import unsupported
from tidemark_planner.expressions.allowed import allowed_call, refuse_class
from tidemark_planner.expressions.casting import cast_to
from tidemark_protocol.functions.call_types import literal_text
from tidemark_protocol.functions.codes import number_format
from tidemark_protocol.functions.nested import STRINGS
from tidemark_protocol.functions.text import MAX_CHARACTERS
from tidemark_protocol.plan.expr import Literal, ScalarExpr
from tidemark_protocol.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, SqlType

Lower = Callable[[CatalystNode], ScalarExpr]
_BINARY = SqlType("binary")
# By class and method: the function, its type, its number of arguments, and the literals that follow the arguments.
_METHODS: dict[tuple[str, str], tuple[str, SqlType, int, tuple[str, ...]]] = {
    ("JsonExpressionUtils", "lengthOfJsonArray"): ("json_array_length", INT, 1, ()),
    ("JsonExpressionUtils", "jsonObjectKeys"): ("json_object_keys", STRINGS, 1, ()),
    ("Base64", "encode"): ("base64", STRING, 1, ("true",)),
    ("Encode", "encode"): ("encode", _BINARY, 2, ("false", "false")),
    ("StringDecode", "decode"): ("decode", STRING, 2, ("false", "false")),
    ("UrlCodec$", "encode"): ("url_encode", STRING, 1, ()),
    ("ExpressionImplUtils", "isLuhnNumber"): ("luhn_check", BOOLEAN, 1, ()),
    ("ExpressionImplUtils", "jaroWinklerSimilarity"): ("jaro_winkler_similarity", DOUBLE, 2, ()),
    ("ExpressionImplUtils", "quote"): ("quote", STRING, 1, ()),
}
_DECODES = {"true": "url_decode", "false": "try_url_decode"}
# Evaluator objects as Spark prints them (start and end of the text), and their functions.
_EVALUATORS = (
    ("StructsToJsonEvaluator(Map(),", "", "to_json"),
    ("ParseUrlEvaluator(", ",true)", "parse_url"),
    ("ParseUrlEvaluator(", ",false)", "try_parse_url"),
)


def lower_method(node: CatalystNode, lower: Lower) -> ScalarExpr | None:
    """The typed tree; None where the class alone says what the node computes."""
    found = _KINDS.get(node.kind)
    return None if found is None else found(node, lower)


def _static_invoke(node: CatalystNode, lower: Lower) -> ScalarExpr:
    of, method = str(node.fields.get("staticObject")).rsplit(".", 1)[-1], str(node.fields.get("functionName"))
    if (of, method) == ("UrlCodec$", "decode"):
        return allowed_call(_DECODES[str(node.children[1].fields["value"])], (lower(node.children[0]),), STRING)
    function, result, count, flags = _METHODS.get((of, method), ("", STRING, 0, ()))
    if not function or tuple(str(c.fields.get("value")) for c in node.children[count:]) != flags:
        refuse_class(method)
    return allowed_call(function, tuple(map(lower, node.children[:count])), result)


def _evaluator_call(node: CatalystNode, lower: Lower) -> ScalarExpr:
    target, *arguments = node.children
    written = str(target.fields.get("value"))
    found = [name for start, end, name in _EVALUATORS if written.startswith(start) and written.endswith(end)]
    if not found:
        refuse_class(written.split("(")[0])
    return allowed_call(found[0], tuple(map(lower, arguments)), STRING)


def _parse_timestamp(node: CatalystNode, lower: Lower) -> ScalarExpr:
    of = type_of(node.fields["dataType"])
    function = "to_timestamp" if of == TIMESTAMP else "to_timestamp_ntz"
    if not node.fields["failOnError"]:
        function = "try_to_timestamp"
    return allowed_call(function, tuple(map(lower, node.children)), of)


def _make_timestamp(node: CatalystNode, lower: Lower) -> ScalarExpr:
    if len(node.children) != 6:
        unsupported("make_timestamp with a time zone", "write the parts in UTC", "make_timestamp")
    of = type_of(node.fields["dataType"])
    prefix = "" if node.fields["failOnError"] else "try_"
    suffix = "ltz" if of == TIMESTAMP else "ntz"
    return allowed_call(f"{prefix}make_timestamp_{suffix}", tuple(map(lower, node.children)), of)


def _unix_seconds(node: CatalystNode, lower: Lower) -> ScalarExpr:
    """unix_timestamp and to_unix_timestamp: of text by a pattern, of a time as unix_seconds."""
    of = lower(node.children[0])
    if of.type == STRING:
        return allowed_call("to_unix_timestamp", (of, lower(node.children[1])), BIGINT)
    return allowed_call("unix_seconds", (cast_to(of, TIMESTAMP),), BIGINT)


def _to_number(node: CatalystNode, lower: Lower) -> ScalarExpr:
    arguments = tuple(map(lower, node.children))
    result = number_format(literal_text(arguments[1]) or "")
    if result is None:
        unsupported(
            "this format of to_number", "write a literal of digits, grouping, one point and a sign", "to_number"
        )
    return allowed_call("to_number" if node.kind == "ToNumber" else "try_to_number", arguments, result)


def _space(node: CatalystNode, lower: Lower) -> ScalarExpr:
    count = lower(node.children[0])
    if not isinstance(count, Literal) or count.value is None or int(count.value) > MAX_CHARACTERS:
        unsupported("space of an expression", f"write a literal number of at most {MAX_CHARACTERS}", "space")
    return Literal(" " * max(int(count.value), 0), STRING)


def _type_name(node: CatalystNode, lower: Lower) -> ScalarExpr:
    of = node.children[0]
    if of.kind == "Literal" and of.fields.get("dataType") == VOID:
        return Literal(VOID, STRING)
    found = lower(of).type
    if found.name.startswith("interval"):
        unsupported("typeof of an interval", "intervals have no column type", "typeof")
    return Literal(str(found), STRING)


_KINDS: dict[str, Callable[[CatalystNode, Lower], ScalarExpr]] = {
    "StaticInvoke": _static_invoke,
    "Invoke": _evaluator_call,
    "GetTimestamp": _parse_timestamp,
    "MakeTimestamp": _make_timestamp,
    "UnixTimestamp": _unix_seconds,
    "ToUnixTimestamp": _unix_seconds,
    "ToNumber": _to_number,
    "TryToNumber": _to_number,
    "StringSpace": _space,
    "TypeOf": _type_name,
    "Pi": lambda node, lower: Literal(repr(math.pi), DOUBLE),
    "EulerNumber": lambda node, lower: Literal(repr(math.e), DOUBLE),
}
