"""The types that columns are declared with, in any engine's words."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sqllogictest.lexer import Token
from tests.sqllogictest.statements import NotOurs
from tidemark_protocol.types import SqlType, TypeNotSupported

# INTEGER, FLOAT and REAL have eight bytes in the engine that most files come from; INT has four, as in Spark.
_TYPES = {
    "INTEGER": "bigint",
    "INT": "int",
    "INT4": "int",
    "MEDIUMINT": "int",
    "SIGNED": "int",
    "INT2": "smallint",
    "SMALLINT": "smallint",
    "TINYINT": "tinyint",
    "BIGINT": "bigint",
    "INT8": "bigint",
    "LONG": "bigint",
    "HUGEINT": "decimal(38,0)",
    "INT128": "decimal(38,0)",
    "UBIGINT": "decimal(20,0)",
    "UINTEGER": "bigint",
    "USMALLINT": "int",
    "UTINYINT": "smallint",
    "INT16": "smallint",
    "INT32": "int",
    "INT64": "bigint",
    "INT1": "tinyint",
    "FLOAT64": "double",
    "FLOAT32": "double",
    "FLOAT": "double",
    "FLOAT8": "double",
    "FLOAT4": "float",
    "REAL": "double",
    "DOUBLE": "double",
    "TEXT": "string",
    "STRING": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "CHARACTER": "string",
    "NVARCHAR": "string",
    "CLOB": "string",
    "BOOL": "boolean",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "DATETIME": "timestamp_ntz",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "TIMESTAMP_LTZ": "timestamp",
    "BLOB": "binary",
    "BYTEA": "binary",
    "BYTES": "binary",
    "VARBINARY": "binary",
    "BINARY": "binary",
}


def type_of(part: Sequence[Token]) -> SqlType:
    """The type that a declaration names; SQLite's columns without one hold text."""
    if not part:
        return SqlType("string")
    word, text = part[0].upper, "".join(t.text for t in part)
    if word in ("DECIMAL", "NUMERIC", "DEC"):
        inside = [t.text for t in part if t.kind == "number"]
        digits = (int(inside[0]), int(inside[1]) if len(inside) > 1 else 0) if inside else (38, 10)
        word, text = "", f"decimal({digits[0]},{digits[1]})"
    if word == "TIMESTAMP" and "TIME" in [t.upper for t in part] and "WITHOUT" not in [t.upper for t in part]:
        word = "TIMESTAMPTZ"
    if part[-1].text == "]" and part[-2].text == "[":
        text, word = f"array<{type_of(part[:-2])}>", ""
    elif any(t.text in ("[", "<") for t in part):
        word = ""
    if "UNSIGNED" in [t.upper for t in part] or word == "UINT":
        word = {"INT": "BIGINT", "INTEGER": "BIGINT"}.get(word, word)
    try:
        return SqlType.parse(_TYPES.get(word, text))
    except TypeNotSupported as error:
        raise NotOurs(str(error)) from None
