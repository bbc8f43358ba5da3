"""Functions of strings for which Arrow and Spark agree: UTF-8, code points, byte order."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.plan.expr import Call, Literal
from tidemark_protocol.types import STRING
from tidemark_replica.evaluator.result import Result, in_order


def admits_like(call: Call) -> bool:
    """Whether the pattern is a literal without an escape."""
    pattern = call.arguments[1]
    return isinstance(pattern, Literal) and pattern.value is not None and "\\" not in pattern.value


def like(call: Call, arguments: list[Result]) -> Result:
    pattern = call.arguments[1]
    assert isinstance(pattern, Literal)
    return Result(_matches(arguments[0].values, str(pattern.value)), arguments[0].failed)


def _matches(values: pa.Array, pattern: str) -> pa.Array:
    inner = pattern.strip("%")
    if "%" in inner or "_" in inner or not inner:
        return pc.match_like(values, pattern)
    begins, ends = not pattern.startswith("%"), not pattern.endswith("%")
    if begins and ends:
        return pc.equal(values, inner)
    if begins:
        return pc.starts_with(values, inner)
    return pc.ends_with(values, inner) if ends else pc.match_substring(values, inner)


def admits_literal_argument(call: Call) -> bool:
    argument = call.arguments[1]
    return isinstance(argument, Literal) and argument.value is not None


def affix(call: Call, arguments: list[Result]) -> Result:
    """startswith, endswith and contains of a literal."""
    wanted = call.arguments[1]
    assert isinstance(wanted, Literal)
    return Result(_AFFIXES[call.function](arguments[0].values, wanted.value), arguments[0].failed)


def length(call: Call, arguments: list[Result]) -> Result:
    values = arguments[0].values
    made = pc.utf8_length(values) if pa.types.is_string(values.type) else pc.binary_length(values)
    return Result(made.cast(pa.int32()), arguments[0].failed)


def admits_substring(call: Call) -> bool:
    """Whether position and length are literals, the position counted from the beginning."""
    start, count = call.arguments[1:]
    if not isinstance(start, Literal) or not isinstance(count, Literal) or start.value is None or count.value is None:
        return False
    return int(start.value) >= 0 and 0 <= int(count.value) < 1 << 30


def substring(call: Call, arguments: list[Result]) -> Result:
    start, count = (int(a.value or 0) for a in call.arguments[1:] if isinstance(a, Literal))
    begin = max(start - 1, 0)
    return Result(pc.utf8_slice_codeunits(arguments[0].values, begin, begin + count), arguments[0].failed)


def admits_concat(call: Call) -> bool:
    """Whether the arguments are strings, not arrays."""
    return call.type == STRING


def concat(call: Call, arguments: list[Result]) -> Result:
    """Ends at the first NULL, as Spark's compiled code does. (What Spark interprets goes on to the last argument; it
    does so only where code does not compile.)"""
    made = pc.binary_join_element_wise(*(a.values for a in arguments), "")
    return Result(made, in_order(arguments))


def replaced(call: Call, arguments: list[Result]) -> Result:
    """Replace every occurrence of a literal that is not empty."""
    wanted, by = call.arguments[1:]
    assert isinstance(wanted, Literal)
    assert isinstance(by, Literal)
    return Result(pc.replace_substring(arguments[0].values, wanted.value, by.value), arguments[0].failed)


def admits_replace(call: Call) -> bool:
    wanted, by = call.arguments[1:]
    literals = isinstance(wanted, Literal) and isinstance(by, Literal)
    return literals and bool(wanted.value) and by.value is not None  # type: ignore[union-attr]


_AFFIXES = {"startswith": pc.starts_with, "endswith": pc.ends_with, "contains": pc.match_substring}
