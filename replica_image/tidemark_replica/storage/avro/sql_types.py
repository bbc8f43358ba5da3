"""The SQL type of each type of Avro.

    boolean, int, long, float, double     BOOLEAN, INT, BIGINT, FLOAT, DOUBLE
    bytes, fixed                          BINARY; a decimal: DECIMAL(precision, scale)
    string, enum                          STRING, also a uuid
    int as date                           DATE
    long as timestamp-millis, -micros     TIMESTAMP; local-timestamp-...: TIMESTAMP_NTZ
    string as iso-date, iso-timestamp     DATE, TIMESTAMP; iso-local-timestamp: TIMESTAMP_NTZ
    record, array                         STRUCT, ARRAY
    a union of null and a type            that type

Another logical type is ignored. Maps and other unions have no counterpart.
"""

from __future__ import annotations

from tidemark_protocol.types import Column, SqlType, TypeNotSupported
from tidemark_replica.storage.avro.schema import NAMED_LOGICAL, AvroType, SchemaRefused

_SIMPLE = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}


def columns_of_record(type: AvroType, at: str = "$") -> tuple[Column, ...]:
    """The columns of a record: one for each field, all of them nullable, as a record may be missing as a whole. `at`:
    the place of the record. Raises SchemaRefused."""
    if type.kind != "record" or not type.fields:
        raise SchemaRefused(f"the schema is of type {type}: a table needs a record with fields")
    return tuple(Column(each.name, sql_type(each.type, f"{at}.{each.name}")) for each in type.fields)


def sql_type(type: AvroType, at: str) -> SqlType:
    """The type of SQL. Raises SchemaRefused with the place `at`."""
    try:
        return _sql_type(type, at)
    except TypeNotSupported as error:
        raise SchemaRefused(f"{at}: {error}") from None


def _sql_type(type: AvroType, at: str) -> SqlType:
    if type.kind == "union":
        return sql_type(present_branch(type, at), at)
    if type.logical == "decimal":
        return SqlType("decimal", type.precision, type.scale)
    if type.logical:
        return SqlType(NAMED_LOGICAL[type.logical][1])
    if type.kind == "array":
        return SqlType.array(sql_type(type.children[0], at + "[]"))
    if type.kind == "record":
        return SqlType.struct((each.name, sql_type(each.type, f"{at}.{each.name}")) for each in type.fields)
    if type.kind not in _SIMPLE:
        raise SchemaRefused(f"{at}: type {type} has no counterpart in SQL; leave the field out of the reader's schema")
    return SqlType(_SIMPLE[type.kind])


def present_branch(union: AvroType, at: str) -> AvroType:
    """The one branch of a union that is not null. Raises SchemaRefused where there are several, or none."""
    branches = [branch for branch in union.children if branch.kind != "null"]
    if len(branches) != 1:
        names = ", ".join(str(branch) for branch in union.children)
        advice = "only one of null and a type has; leave the field out of the reader's schema"
        raise SchemaRefused(f"{at}: a union of {names} has no counterpart in SQL, {advice}")
    return branches[0]
