"""Arrays as parameters, which statements about the catalogue have: `oid = any($1::oid[])`. They are texts inside."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

ITEMS_MAX = 10_000
_HEAD, _DIMENSION, _SIZE = struct.Struct("!iiI"), struct.Struct("!ii"), struct.Struct("!i")


def _number(format: str) -> Callable[[bytes], str]:
    unpack = struct.Struct(f"!{format}").unpack
    return lambda data: str(unpack(data)[0])


def _text(data: bytes) -> str:
    return data.decode()


ELEMENTS: Mapping[int, tuple[int, Callable[[bytes], str]]] = {
    1003: (19, _text),
    1005: (21, _number("h")),
    1007: (23, _number("i")),
    1009: (25, _text),
    1015: (1043, _text),
    1016: (20, _number("q")),
    1028: (26, _number("I")),
}
"""By the oid of an array: the oid of its elements, and what reads one of them."""


def array_text(oid: int, data: bytes) -> str:
    """The text format of an array in the binary one. Raises struct.error or ValueError: it is none."""
    element, read = ELEMENTS[oid]
    dimensions, _, given = _HEAD.unpack_from(data)
    if dimensions == 0 and len(data) == _HEAD.size:
        return "{}"
    size, _ = _DIMENSION.unpack_from(data, _HEAD.size)
    if dimensions != 1 or given != element or not 0 <= size <= ITEMS_MAX:
        raise ValueError(f"not an array of one dimension with at most {ITEMS_MAX} elements")
    items, at = list[str](), _HEAD.size + _DIMENSION.size
    for _ in range(size):
        (length,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if length < -1 or at + max(length, 0) > len(data):
            raise ValueError("an element ends after the array")
        items.append("NULL" if length < 0 else _quoted(read(data[at : at + length])))
        at += max(length, 0)
    if at != len(data):
        raise ValueError("bytes after the last element")
    return "{" + ",".join(items) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
