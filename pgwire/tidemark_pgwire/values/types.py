"""PostgreSQL's types, by oid, and those of the columns of Tidemark.

tinyint, smallint    int2          string            text            array of these       an array
int, bigint          int4, int8    binary            bytea           struct, and arrays
float, double        float4, 8     timestamp         timestamptz     of arrays or structs json
decimal(p,s)         numeric       timestamp_ntz     timestamp
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_pgwire.values.system_types import system_types
from tidemark_protocol.types import SqlType


@dataclass(frozen=True)
class PgType:
    """`kind`: how values are encoded. `size`: of the binary format in bytes; -1: they differ."""

    oid: int
    name: str
    kind: str
    size: int
    element: PgType | None = None


_SAME = "bool bytea int2 int4 int8 text oid json float4 float8 date timestamp timestamptz numeric".split()
_KINDS = {
    **{name: name for name in _SAME},
    **dict.fromkeys("char name regproc unknown aclitem bpchar varchar regclass regtype uuid".split(), "text"),
    "xid": "oid",
}
VECTORS = {"int2vector": "int2", "oidvector": "oid"}
"""Arrays whose first element has the subscript 0, and which print as `1 2 3`."""
_ARRAYS = (
    "bool bytea char name int2 int4 text int8 float4 float8 oid timestamp date timestamptz numeric varchar json "
    "aclitem uuid".split()
)
"""The types of which there are arrays here."""


def _type(name: str, kind: str, element: PgType | None = None) -> PgType:
    found = system_types()[name]
    return PgType(found.oid, name, kind, found.length, element)


BY_NAME = {name: _type(name, kind) for name, kind in _KINDS.items()}
BY_NAME |= {name: _type(name, "vector", BY_NAME[element]) for name, element in VECTORS.items()}
BY_NAME |= {f"_{name}": _type(f"_{name}", "array", BY_NAME[name]) for name in _ARRAYS}
BY_OID = {each.oid: each for each in BY_NAME.values()}
TEXT, INT8 = BY_NAME["text"], BY_NAME["int8"]
_OF_SQL = {
    "boolean": "bool",
    "tinyint": "int2",
    "smallint": "int2",
    "int": "int4",
    "bigint": "int8",
    "float": "float4",
    "double": "float8",
    "decimal": "numeric",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "struct": "json",
}


def of_oid(oid: int) -> PgType:
    """A type that has no entry is a text."""
    return BY_OID.get(oid) or PgType(oid, "text", "text", -1)


def of_sql(type: SqlType) -> PgType:
    """Arrays that PostgreSQL has no like of are json, as structs are."""
    if type.is_array:
        element = of_sql(type.element)
        return BY_NAME["json"] if element.kind in ("array", "json") else BY_NAME[f"_{element.name}"]
    return BY_NAME[_OF_SQL[type.name]]


def modifier(type: SqlType) -> int:
    """The typmod: of numeric(p, s), also in arrays; -1: none."""
    inner = type.element if type.is_array else type
    return ((inner.precision << 16) | inner.scale) + 4 if inner.is_decimal else -1
