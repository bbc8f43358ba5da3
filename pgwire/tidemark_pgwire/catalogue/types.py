"""The names, arrays and elements of PostgreSQL's types, and how DuckDB stores their values."""

from __future__ import annotations

from tidemark_pgwire.values.system_types import system_types, types_by_oid
from tidemark_pgwire.values.types import VECTORS

_ALIASES = {
    "boolean": "bool",
    "smallint": "int2",
    "int": "int4",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "float": "float8",
    "double": "float8",
    "double precision": "float8",
    "decimal": "numeric",
    "character varying": "varchar",
    "character": "bpchar",
    '"char"': "char",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "time without time zone": "time",
    "time with time zone": "timetz",
    "sql_identifier": "name",
    "character_data": "varchar",
    "cardinal_number": "int4",
    "yes_or_no": "varchar",
}
INTEGERS = ("int2", "int4", "int8")
REGISTERED = ("regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole", "regcollation", "regoper")
"""Oids that print as the name of what they stand for."""
_OIDS = ("oid", "xid", "cid", *REGISTERED)
SENT = frozenset(
    "aclitem bool char name int2 int4 int8 text oid xid json float4 float8 date timestamp timestamptz varchar "
    "unknown".split()
)
"""Types whose values, and arrays of them, the protocol sends in both formats. The others are sent as texts."""
_SAME = ("date", "timestamp", "timestamptz", "bool", "float4", "float8")


def oid_of(name: str) -> int:
    """Text where the type is not known, as PostgreSQL takes a literal."""
    known = name in system_types() and name != "unknown"
    return system_types()[name if known else "text"].oid


def resolved(name: str) -> str | None:
    """The name in pg_type of a type as SQL writes it, in lower case; None: there is no such type."""
    name = name.strip().removeprefix("pg_catalog.").removeprefix("information_schema.")
    if name.endswith("[]"):
        element = resolved(name.removesuffix("[]"))
        return None if element is None else array_of(element)
    name = _ALIASES.get(name, name)
    return name if name in system_types() else None


def array_of(element: str) -> str | None:
    """An array of arrays is an array."""
    if element.startswith("_"):
        return element
    found = types_by_oid().get(system_types()[element].array)
    return found.name if found else None


def element_of(array: str) -> str:
    found = types_by_oid().get(system_types()[array].element) if array in system_types() else None
    return found.name if found else "text"


def stored_as(name: str) -> str:
    """DuckDB's type for the values of a type of pg_type."""
    if name in VECTORS:
        return f"{stored_as(VECTORS[name])}[]"
    if name.startswith("_") and name in system_types():
        return f"{stored_as(element_of(name))}[]"
    if name in _OIDS:
        return "BIGINT"
    if name in INTEGERS:
        return {"int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT"}[name]
    if name == "numeric":
        return "DECIMAL(38, 9)"
    return name.upper() if name in _SAME else "VARCHAR"
