"""Arrays as parameters, `x = any($1)`: a text, which the catalogue and the planner read."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from uuid import UUID

from tidemark_pgwire.values.types import BY_OID

ITEMS_MAX = 10_000
_HEAD, _DIMENSION, _SIZE = struct.Struct("!iiI"), struct.Struct("!ii"), struct.Struct("!i")
_PLAIN = re.compile(r"[0-9A-Za-z.+:-]+", re.ASCII)
"""Elements that need no quotes."""
KINDS: Mapping[int, str] = {
    1000: "boolean[]",
    1005: "smallint[]",
    1007: "int[]",
    1016: "bigint[]",
    1022: "double precision[]",
    1028: "bigint[]",
    1115: "timestamp[]",
    1182: "date[]",
    1185: "timestamptz[]",
    1231: "numeric[]",
    **dict.fromkeys((1003, 1009, 1015, 2951), "text[]"),
}
"""The kinds of parameters: the type of an array in PostgreSQL's dialect."""
ELEMENTS: Mapping[int, int] = {oid: element.oid for oid in KINDS if (element := BY_OID[oid].element) is not None}
"""The oid of an array, and that of its elements."""


def array_text(data: bytes, element: int, read: Callable[[bytes], str]) -> str:
    """The text format of an array in the binary one. `element`: the oid of its elements; `read`: the text of one.
    Raises struct.error or ValueError: it is none."""
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


def text_of_uuids(text: str) -> str:
    """The text of an array of UUIDs, each in the form that columns have. Raises ValueError: it is none."""
    inside = text.strip()
    if inside[:1] != "{" or inside[-1:] != "}":
        raise ValueError(text)
    items = inside[1:-1].split(",") if inside[1:-1].strip() else []
    return "{" + ",".join(map(_uuid, items)) + "}"


def _uuid(item: str) -> str:
    text = item.strip()
    return "NULL" if text.upper() == "NULL" else str(UUID(text.removeprefix('"').removesuffix('"')))


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.upper() != "NULL":
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
