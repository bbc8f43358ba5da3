"""Spark's types in its JSON, and ours.

{"type": "array", "elementType": "long", "containsNull": true}  <->  array<bigint>
"""

from __future__ import annotations

from typing import Any

from tidemark_planner.errors import refuse, unsupported
from tidemark_protocol.types import STRING, SqlType, TypeNotSupported

# The type of a NULL without a type; a cast or the context replaces it.
VOID = "void"
_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_SPARK_NAMES = {ours: theirs for theirs, ours in _NAMES.items()}


def type_of(described: object) -> SqlType:
    """The type that Spark's JSON describes; raises Refusal for a type that columns cannot have."""
    try:
        return _type_of(described)
    except TypeNotSupported as error:
        refuse("TYPE", str(error), word=described if isinstance(described, str) else "")


def spark_json(of: SqlType) -> Any:
    """The type in Spark's JSON; elements and fields may be NULL."""
    if of.is_array:
        return {"type": "array", "elementType": spark_json(of.element), "containsNull": True}
    if of.is_struct:
        return {"type": "struct", "fields": [spark_field(n, t, True) for n, t in of.fields]}
    return _SPARK_NAMES.get(of.name, str(of))


def spark_field(name: str, of: SqlType, nullable: bool) -> dict[str, Any]:
    """A field of a struct, or a column of a relation, in Spark's JSON."""
    return {"name": name, "type": spark_json(of), "nullable": nullable, "metadata": {}}


def text_type(of: SqlType) -> SqlType:
    """The type of the same shape whose leaves are strings; raises Refusal for nested binary."""
    if of.is_array:
        return SqlType.array(text_type(of.element))
    if of.is_struct:
        return SqlType.struct((name, text_type(t)) for name, t in of.fields)
    if of.name == "binary":
        unsupported(
            "a binary value inside an array or struct of VALUES", "build the array or struct in the SELECT list"
        )
    return STRING


def _type_of(described: Any) -> SqlType:
    if isinstance(described, dict):
        return _nested(described)
    name = str(described)
    if name.startswith("interval"):
        months = name.startswith(("interval year", "interval month"))
        return SqlType("interval year to month" if months else "interval day to second")
    if name == VOID:
        raise TypeNotSupported("NULL without a type is not supported: write CAST(NULL AS ...)")
    return SqlType.parse(_NAMES.get(name, name))


def _nested(described: dict[str, Any]) -> SqlType:
    kind = described["type"]
    if kind == "array":
        return SqlType.array(_type_of(described["elementType"]))
    if kind == "struct":
        return SqlType.struct((f["name"], _type_of(f["type"])) for f in described["fields"])
    raise TypeNotSupported(f"type {kind} is not supported: use an array of structs")
