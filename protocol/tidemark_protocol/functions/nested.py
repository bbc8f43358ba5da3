"""Functions of arrays, structs and JSON: their types and errors (registry.py lists them).

    subscript(array<T>, int)   T        INVALID_ARRAY_INDEX beyond the end
    field(struct<a:T>, 0)      T        `x.a`; of an array of structs, an array of that field

Where an argument decides the size of the result, it must be a small literal.
"""

from __future__ import annotations

from tidemark_protocol.functions.call_types import Signature, literal_whole, types_of
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.types import BOOLEAN, INT, STRING, SqlType

INVALID_ARRAY_INDEX = "INVALID_ARRAY_INDEX"
INVALID_ARRAY_INDEX_IN_ELEMENT_AT = "INVALID_ARRAY_INDEX_IN_ELEMENT_AT"
INVALID_INDEX_OF_ZERO = "INVALID_INDEX_OF_ZERO"
INVALID_PARAMETER = "INVALID_PARAMETER_VALUE"
STRINGS = SqlType.array(STRING)
# The largest number of elements that a literal may ask for.
MAX_ELEMENTS = 10_000
Arguments = tuple[ScalarExpr, ...]


def array(arguments: Arguments, result: SqlType) -> bool:
    return result.is_array and all(t == result.element for t in types_of(arguments))


def named_struct(arguments: Arguments, result: SqlType) -> bool:
    """The values of the fields, which the result's type names."""
    return result.is_struct and types_of(arguments) == result.children


def field(arguments: Arguments, result: SqlType) -> bool:
    """A field by its position; of an array of structs, the field of each."""
    of, position = arguments
    found = field_type(of.type, position)
    return found is not None and found == result


def field_type(of: SqlType, position: ScalarExpr) -> SqlType | None:
    struct, at = of.element if of.is_array else of, literal_whole(position)
    if not struct.is_struct or at is None or not 0 <= at < len(struct.children):
        return None
    found = struct.children[at]
    return SqlType.array(found) if of.is_array else found


def subscript(arguments: Arguments, result: SqlType) -> bool:
    of, index = types_of(arguments)
    return of.is_array and of.element == result and index.is_integral


def element_at(arguments: Arguments, result: SqlType) -> bool:
    return subscript(arguments, result) and arguments[1].type == INT


def of_array(result: SqlType) -> Signature:
    """One array gives a value of this type."""
    return lambda arguments, to: to == result and arguments[0].type.is_array


def same_arrays(arguments: Arguments, result: SqlType) -> bool:
    """Arrays of one type, with a result of that type."""
    return result.is_array and set(types_of(arguments)) == {result}


def of_elements(arguments: Arguments, result: SqlType) -> bool:
    """`array_min`: one array gives one of its elements."""
    return arguments[0].type.is_array and arguments[0].type.element == result


def search(result: SqlType) -> Signature:
    """A signature of an array and an element to search for."""
    return lambda arguments, to: to == result and _array_and_element(arguments)


def removal(arguments: Arguments, result: SqlType) -> bool:
    return _array_and_element(arguments) and arguments[0].type == result


def overlap(arguments: Arguments, result: SqlType) -> bool:
    left, right = types_of(arguments)
    return result == BOOLEAN and left.is_array and left == right


def insertion(arguments: Arguments, result: SqlType) -> bool:
    """An array, a literal position, a new element."""
    of, at, _ = arguments
    return _is_small(at) and _array_and_element((of, arguments[2])) and of.type == result


def repetition(arguments: Arguments, result: SqlType) -> bool:
    return result.is_array and arguments[0].type == result.element and _is_small(arguments[1])


def sorting(arguments: Arguments, result: SqlType) -> bool:
    of, ascending = arguments
    return of.type.is_array and of.type == result and isinstance(ascending, Literal) and ascending.type == BOOLEAN


def reversal(arguments: Arguments, result: SqlType) -> bool:
    of = arguments[0].type
    return of == result and (of.is_array or of == STRING)


def flattening(arguments: Arguments, result: SqlType) -> bool:
    of = arguments[0].type
    return of.is_array and of.element.is_array and of.element == result


def slicing(arguments: Arguments, result: SqlType) -> bool:
    return arguments[0].type.is_array and types_of(arguments) == (result, INT, INT)


def joining(arguments: Arguments, result: SqlType) -> bool:
    """`array_join`: texts, a separator, and optionally a text for NULL."""
    return result == STRING and types_of(arguments) in ((STRINGS, STRING), (STRINGS, STRING, STRING))


def splitting(arguments: Arguments, result: SqlType) -> bool:
    """`split`: text, a literal pattern, a literal limit."""
    literal = all(isinstance(a, Literal) and a.value is not None for a in arguments[1:])
    return result == STRINGS and types_of(arguments) == (STRING, STRING, INT) and literal


def parsing(arguments: Arguments, result: SqlType) -> bool:
    """`from_json`: the result's type is the schema."""
    return result.is_nested and types_of(arguments) == (STRING,)


def as_json(arguments: Arguments, result: SqlType) -> bool:
    return result == STRING and arguments[0].type.is_nested


def subscript_errors(call: Call) -> frozenset[str]:
    return frozenset({INVALID_ARRAY_INDEX})


def element_errors(call: Call) -> frozenset[str]:
    return try_element_errors(call) | {INVALID_ARRAY_INDEX_IN_ELEMENT_AT}


def try_element_errors(call: Call) -> frozenset[str]:
    """Position 0 is an error, also for try_ functions."""
    index = call.arguments[-1]
    fine = isinstance(index, Literal) and (index.value is None or int(index.value) != 0)
    return frozenset() if fine else frozenset({INVALID_INDEX_OF_ZERO})


def insertion_errors(call: Call) -> frozenset[str]:
    at = call.arguments[1]
    zero = isinstance(at, Literal) and at.value == "0"
    return frozenset({INVALID_INDEX_OF_ZERO}) if zero else frozenset()


def _array_and_element(arguments: Arguments) -> bool:
    of, element = types_of(arguments)
    return of.is_array and of.element == element


def _is_small(argument: ScalarExpr) -> bool:
    number = literal_whole(argument)
    return number is not None and abs(number) <= MAX_ELEMENTS
