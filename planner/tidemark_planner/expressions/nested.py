"""Catalyst's expressions over arrays, structs and JSON as typed trees: they build, take apart and
search nested values.

    GetArrayItem(a, 3)           subscript(a, 3)        out of range is an error
    GetArrayItem(a, 3) of get()  get(a, 3)              out of range is NULL
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.catalyst.spark_types import VOID, type_of
from tidemark_planner.errors import refuse, unsupported
from tidemark_planner.expressions.allowed import supported_call
from tidemark_protocol.functions.nested import STRINGS, field_type
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.types import BIGINT, BOOLEAN, INT, STRING, SqlType

Lower = Callable[[CatalystNode], ScalarExpr]

# The SQL names of these functions.
NAMES = frozenset(
    "array named_struct struct get element_at try_element_at size cardinality array_size array_contains array_position "
    "array_remove array_insert array_append array_prepend array_repeat array_distinct array_union array_intersect "
    "array_except arrays_overlap array_min array_max sort_array reverse flatten slice array_join split split_part "
    "from_json get_json_object json_array_length json_object_keys".split()
)
TABLE_FUNCTIONS = frozenset(
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack sequence range".split()
)
_SAME_TYPE = {
    "ArrayRemove": "array_remove",
    "ArrayInsert": "array_insert",
    "ArrayDistinct": "array_distinct",
    "ArrayUnion": "array_union",
    "ArrayIntersect": "array_intersect",
    "ArrayExcept": "array_except",
    "Reverse": "reverse",
    "Slice": "slice",
    "Concat": "concat",
}
_ELEMENT = {"ArrayMin": "array_min", "ArrayMax": "array_max", "Flatten": "flatten"}
_FIXED = {
    "Size": ("size", INT),
    "ArrayContains": ("array_contains", BOOLEAN),
    "ArrayPosition": ("array_position", BIGINT),
    "ArraysOverlap": ("arrays_overlap", BOOLEAN),
    "ArrayJoin": ("array_join", STRING),
    "StringSplit": ("split", STRINGS),
    "GetJsonObject": ("get_json_object", STRING),
}


def lower_nested(node: CatalystNode, lower: Lower) -> ScalarExpr | None:
    """The typed tree of an expression of this family; None for expressions of other families."""
    kind = node.kind
    if kind in _SPECIAL:
        return _SPECIAL[kind](node, lower)
    if kind not in _SAME_TYPE and kind not in _ELEMENT and kind not in _FIXED:
        return None
    arguments = tuple(lower(child) for child in node.children)
    of = arguments[0].type
    if kind in _FIXED:
        name, result = _FIXED[kind]
        return _allowed_call(name, arguments, result)
    if kind in _SAME_TYPE:
        return _allowed_call(_SAME_TYPE[kind], arguments, of)
    return _allowed_call(_ELEMENT[kind], arguments, of.element)


def empty_array(node: CatalystNode, target: SqlType) -> ScalarExpr | None:
    """`array()` and `array(NULL)`, whose type is that of the cast around them; None for anything else."""
    if node.kind != "CreateArray" or not target.is_array:
        return None
    if any(c.kind != "Literal" or c.fields["dataType"] != VOID for c in node.children):
        return None
    return call("array", tuple(Literal(None, target.element) for _ in node.children), target)


def with_first_type(arguments: tuple[ScalarExpr, ...]) -> tuple[ScalarExpr, ...]:
    """Structs that are compared, cast to the type of the first: Spark compares fields by position, whatever their
    names.
    """
    of = arguments[0].type
    return tuple(call("cast", (a,), of) if of.is_nested and a.type != of else a for a in arguments)


def _allowed_call(name: str, arguments: tuple[ScalarExpr, ...], result: SqlType) -> ScalarExpr:
    return supported_call(name, arguments, result, "write counts, patterns and limits as small literals")


def _array(node: CatalystNode, lower: Lower) -> ScalarExpr:
    arguments = tuple(lower(child) for child in node.children)
    if not arguments:
        unsupported("array() without a type", "write CAST(array() AS ARRAY<...>)", "array()")
    return call("array", arguments, SqlType.array(arguments[0].type))


def _named_struct(node: CatalystNode, lower: Lower) -> ScalarExpr:
    names = [str(n.fields.get("value")) for n in node.children[0::2] if n.kind == "Literal"]
    values = tuple(lower(child) for child in node.children[1::2])
    if len(names) != len(values):
        unsupported("a struct whose field names are not literals", "write the names as literals", "struct")
    folded = [n.lower() for n in names]
    if twice := next((n for n in names if folded.count(n.lower()) > 1), None):
        refuse("TYPE", f"a struct has two fields called {twice}: rename one of them", word=twice)
    return call("named_struct", values, SqlType.struct(zip(names, (v.type for v in values), strict=True)))


def _field(node: CatalystNode, lower: Lower) -> ScalarExpr:
    of, position = lower(node.children[0]), Literal(str(node.fields["ordinal"]), INT)
    found = field_type(of.type, position)
    if found is None:
        unsupported(f"a field of {of.type}", "only structs and arrays of structs have fields")
    return call("field", (of, position), found)


def _subscript(node: CatalystNode, lower: Lower) -> ScalarExpr:
    of, index = (lower(child) for child in node.children)
    return call("subscript" if node.fields["failOnError"] else "get", (of, index), of.type.element)


def _element_at(node: CatalystNode, lower: Lower) -> ScalarExpr:
    of, index = node.children
    if of.kind == "StringSplitSQL":
        return call("split_part", (*(lower(child) for child in of.children), lower(index)), STRING)
    array = lower(of)
    if not array.type.is_array:
        unsupported(f"element_at of {array.type}", "it takes an array", "element_at")
    name = "element_at" if node.fields["failOnError"] else "try_element_at"
    return call(name, (array, lower(index)), array.type.element)


def _sort_array(node: CatalystNode, lower: Lower) -> ScalarExpr:
    of, ascending = (lower(child) for child in node.children)
    return _allowed_call("sort_array", (of, ascending), of.type)


def _array_repeat(node: CatalystNode, lower: Lower) -> ScalarExpr:
    of, times = (lower(child) for child in node.children)
    return _allowed_call("array_repeat", (of, times), SqlType.array(of.type))


def _from_json(node: CatalystNode, lower: Lower) -> ScalarExpr:
    if node.fields.get("options"):
        unsupported("from_json with options", "leave the options out", "from_json")
    return _allowed_call("from_json", (lower(node.children[0]),), type_of(node.fields["schema"]))


def _sequence(node: CatalystNode, lower: Lower) -> ScalarExpr:
    """An array of literals, of integers that are literals themselves."""
    arguments = [lower(child) for child in node.children]
    numbers = [value for value in map(_integer, arguments) if value is not None]
    values = _numbers_from(*numbers) if len(numbers) == len(arguments) else None
    if values is None or len(values) > _SEQUENCE_ELEMENTS:
        message = (
            "a sequence as an array is not supported, since its size has no bound: make rows with "
            f"explode(sequence(...)), or write literals of at most {_SEQUENCE_ELEMENTS} elements"
        )
        refuse("UNSUPPORTED", message, word="sequence")
    of = arguments[0].type
    return call("array", tuple(Literal(str(value), of) for value in values), SqlType.array(of))


def _numbers_from(start: int, stop: int, step: int | None = None) -> range:
    """The numbers from `start` to `stop`, both included, as Spark counts. Raises Refusal for a step that never
    arrives."""
    each = (1 if start <= stop else -1) if step is None else step
    if start != stop and (each == 0 or (each > 0) != (start < stop)):
        message = f"a sequence from {start} to {stop} has no step {each}: write a step towards its end"
        refuse("TYPE", message, word="sequence")
    return range(start, stop + (1 if each >= 0 else -1), each or 1)


def _integer(expression: ScalarExpr) -> int | None:
    """The integer that an expression is as a literal, perhaps in a larger width; None for anything else."""
    if isinstance(expression, Call) and expression.function == "cast" and expression.type == BIGINT:
        return _integer(expression.arguments[0])
    if isinstance(expression, Literal) and expression.type.is_integral and expression.value is not None:
        return int(expression.value)
    return None


_SEQUENCE_ELEMENTS = 1000
_SPECIAL: dict[str, Callable[[CatalystNode, Lower], ScalarExpr]] = {
    "CreateArray": _array,
    "CreateNamedStruct": _named_struct,
    "GetStructField": _field,
    "GetArrayStructFields": _field,
    "GetArrayItem": _subscript,
    "ElementAt": _element_at,
    "SortArray": _sort_array,
    "ArrayRepeat": _array_repeat,
    "JsonToStructs": _from_json,
    "Sequence": _sequence,
}
