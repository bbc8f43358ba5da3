"""The SQL type of a column of PostgreSQL; docs/guides/postgres.md has the table for people.

A domain counts as what it is based on. A type without a counterpart is a string, as PostgreSQL prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_protocol.types import STRING, SqlType

_TYPES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "oid": "bigint",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
_ELEMENTS = frozenset(_TYPES) - {"bytea"} | {"numeric", "text", "varchar", "bpchar", "name", "uuid", "json", "jsonb"}
"""Arrays of these are arrays; others are printed."""
_PRECISION_MAX = 38
_FIRST_OF_USERS = 16_384
"""Types with this oid or a higher one are defined by users and extensions."""


@dataclass(frozen=True)
class TypeDefinition:
    """A row of pg_type. `kind`: `b` base, `c` composite, `d` domain, `e` enum, `r` range, `m` multirange."""

    oid: int
    name: str
    kind: str
    category: str
    base: int
    base_modifier: int
    element: int


def sql_type(oid: int, modifier: int, types: Mapping[int, TypeDefinition]) -> SqlType:
    """The type of a column. `types`: the definitions by oid, those that it is based on included."""
    found = types[oid]
    while found.kind == "d":
        oid, modifier = found.base, found.base_modifier
        found = types[oid]
    if found.category == "A" and found.element:
        element = types[found.element]
        if element.kind == "e" or element.name in _ELEMENTS:
            return SqlType.array(sql_type(found.element, modifier, types))
        return STRING
    if found.oid >= _FIRST_OF_USERS:
        return STRING
    if found.name == "numeric":
        return _decimal(modifier)
    return SqlType(_TYPES[found.name]) if found.name in _TYPES else STRING


def _decimal(modifier: int) -> SqlType:
    """A string where the precision is not declared, or no decimal has it."""
    if modifier < 4:
        return STRING
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    if not (0 <= scale <= precision <= _PRECISION_MAX):
        return STRING
    return SqlType("decimal", precision, scale)
