"""Walks over the bytes of a single body, which find where one value ends without decoding it.

Long lists are walked, so that their elements can be decoded side by side like bodies. A walk checks no more than it
needs to find the end; the decoding checks the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark_replica.storage.avro.schema import AvroType

NOWHERE = -1
Walk = Callable[[memoryview, int, int], int]
"""(bytes, position, end) -> the position after the value; NOWHERE where the value is malformed."""
SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def walk_of(type: AvroType) -> Walk:
    """The walk over values of the type."""
    if type.kind in SIZES or type.kind == "fixed":
        return _fixed(SIZES.get(type.kind, type.size))
    if type.kind in ("int", "long", "enum"):
        return _past_number
    if type.kind in ("bytes", "string"):
        return _past_span
    if type.kind == "union":
        return _union([walk_of(child) for child in type.children])
    if type.kind == "record":
        return _record([walk_of(field.type) for field in type.fields])
    element = walk_of(type.children[0])
    return _list(element if type.kind == "array" else _record([_past_span, element]))


def number_at(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """The number in zigzag, and the position after it; NOWHERE where it has no end, or more than ten bytes."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    return 0, NOWHERE


def _fixed(size: int) -> Walk:
    return lambda data, at, end: at + size if at + size <= end else NOWHERE


def _past_number(data: memoryview, at: int, end: int) -> int:
    return number_at(data, at, end)[1]


def _past_span(data: memoryview, at: int, end: int) -> int:
    length, at = number_at(data, at, end)
    return at + length if at != NOWHERE and 0 <= length <= end - at else NOWHERE


def _union(branches: Sequence[Walk]) -> Walk:
    def walk(data: memoryview, at: int, end: int) -> int:
        branch, at = number_at(data, at, end)
        return branches[branch](data, at, end) if at != NOWHERE and 0 <= branch < len(branches) else NOWHERE

    return walk


def _record(fields: Sequence[Walk]) -> Walk:
    def walk(data: memoryview, at: int, end: int) -> int:
        for field in fields:
            at = field(data, at, end)
            if at == NOWHERE:
                break
        return at

    return walk


def block_at(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number of elements of the block that begins at a position, and where they begin; NOWHERE: it is malformed."""
    count, at = number_at(data, at, end)
    if count < 0 and at != NOWHERE:
        size, at = number_at(data, at, end)
        at = NOWHERE if size < 0 else at
    return abs(count), at


def past_list(element: Walk, data: memoryview, at: int, end: int, count: int = 0) -> int:
    """The position after a list, of which `count` elements of a block are still to come; NOWHERE: it is malformed."""
    while at != NOWHERE:
        if count == 0:
            count, at = block_at(data, at, end)
            if count == 0 or at == NOWHERE:
                return at
        begin, at = at, element(data, at, end)
        if at == begin:  # there could be any number of elements without bytes
            return NOWHERE
        count -= 1
    return at


def _list(element: Walk) -> Walk:
    return lambda data, at, end: past_list(element, data, at, end)
