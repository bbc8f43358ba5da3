"""PostgreSQL's types, by oid, and those of the columns of Tidemark.

tinyint, smallint    int2          string            text            array of these       an array
int, bigint          int4, int8    binary            bytea           struct, and arrays
float, double        float4, 8     timestamp         timestamptz     of arrays or structs json
decimal(p,s)         numeric       timestamp_ntz     timestamp
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.types import SqlType


@dataclass(frozen=True)
class PgType:
    """`kind`: how values are encoded. `size`: of the binary format in bytes; -1: they differ."""

    oid: int
    name: str
    kind: str
    size: int
    element: PgType | None = None


_BASE = (
    PgType(16, "bool", "bool", 1),
    PgType(17, "bytea", "bytea", -1),
    PgType(18, "char", "text", 1),
    PgType(19, "name", "text", 64),
    PgType(20, "int8", "int8", 8),
    PgType(21, "int2", "int2", 2),
    PgType(23, "int4", "int4", 4),
    PgType(24, "regproc", "text", 4),
    PgType(25, "text", "text", -1),
    PgType(26, "oid", "oid", 4),
    PgType(28, "xid", "oid", 4),
    PgType(114, "json", "json", -1),
    PgType(700, "float4", "float4", 4),
    PgType(701, "float8", "float8", 8),
    PgType(705, "unknown", "text", -1),
    PgType(1033, "aclitem", "text", 12),
    PgType(1042, "bpchar", "text", -1),
    PgType(1043, "varchar", "text", -1),
    PgType(1082, "date", "date", 4),
    PgType(1114, "timestamp", "timestamp", 8),
    PgType(1184, "timestamptz", "timestamptz", 8),
    PgType(1700, "numeric", "numeric", -1),
    PgType(2205, "regclass", "text", 4),
    PgType(2206, "regtype", "text", 4),
    PgType(2950, "uuid", "text", 16),
)
BY_OID = {each.oid: each for each in _BASE}
_BY_NAME = {each.name: each for each in _BASE}
_VECTORS = {"int2vector": (22, "int2"), "oidvector": (30, "oid")}
"""Arrays of the catalogue whose first element has the number 0, and which print as `1 2 3`."""
BY_OID |= {oid: PgType(oid, name, "vector", -1, _BY_NAME[element]) for name, (oid, element) in _VECTORS.items()}
_ARRAYS = {
    "bool": 1000,
    "bytea": 1001,
    "char": 1002,
    "name": 1003,
    "int2": 1005,
    "int4": 1007,
    "text": 1009,
    "int8": 1016,
    "float4": 1021,
    "float8": 1022,
    "oid": 1028,
    "timestamp": 1115,
    "date": 1182,
    "timestamptz": 1185,
    "numeric": 1231,
    "varchar": 1015,
    "json": 199,
    "aclitem": 1034,
    "uuid": 2951,
}
BY_OID |= {oid: PgType(oid, f"_{name}", "array", -1, _BY_NAME[name]) for name, oid in _ARRAYS.items()}
TEXT, INT4, INT8 = _BY_NAME["text"], _BY_NAME["int4"], _BY_NAME["int8"]
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
        return _BY_NAME["json"] if element.kind in ("array", "json") else BY_OID[_ARRAYS[element.name]]
    return _BY_NAME[_OF_SQL[type.name]]


def modifier(type: SqlType) -> int:
    """The typmod: of numeric(p, s), also in arrays; -1: none."""
    inner = type.element if type.is_array else type
    return ((inner.precision << 16) | inner.scale) + 4 if inner.is_decimal else -1
