"""Columns of a relation as Spark's types: those at `load()`, and those that a read has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pyspark.sql import types as spark

from tidemark.errors import InterfaceError, NotSupportedError, RelationChanged
from tidemark_protocol.types import SqlType

Named = Iterable[tuple[str, str]]
"""Names, and types as SQL writes them."""
_SIMPLE: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "tinyint": spark.ByteType(),
    "smallint": spark.ShortType(),
    "int": spark.IntegerType(),
    "bigint": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "binary": spark.BinaryType(),
    "date": spark.DateType(),
    "timestamp": spark.TimestampType(),
    "timestamp_ntz": spark.TimestampNTZType(),
}


def schema_of(columns: Named) -> spark.StructType:
    """Raises InterfaceError: two columns have one name. NotSupportedError: a type is an interval."""
    named = list(columns)
    if twice := [name for name, count in Counter(name for name, _ in named).items() if count > 1]:
        raise InterfaceError(f"two columns are called {twice[0]}: rename one with AS, in option query")
    return spark.StructType([spark.StructField(name, _spark_type(SqlType.parse(type))) for name, type in named])


def check_columns(subject: str, loaded: spark.StructType, now: Named) -> None:
    """Raises RelationChanged unless a read has the columns that the DataFrame was loaded with, in the same order."""
    found = schema_of(now)
    if _pairs(found) != _pairs(loaded):
        raise RelationChanged(
            f"RELATION_CHANGED: {subject} has columns {_text(found)}, and had {_text(loaded)} when the DataFrame was "
            "loaded: load it again"
        )


def _spark_type(type: SqlType) -> spark.DataType:
    if type.is_array:
        return spark.ArrayType(_spark_type(type.element))
    if type.is_struct:
        return spark.StructType([spark.StructField(name, _spark_type(field)) for name, field in type.fields])
    if type.is_decimal:
        return spark.DecimalType(type.precision, type.scale)
    if type.name not in _SIMPLE:
        raise NotSupportedError(f"a DataFrame has no column of type {type}: use CAST, in option query")
    return _SIMPLE[type.name]


def _pairs(schema: spark.StructType) -> list[tuple[str, spark.DataType]]:
    return [(field.name, field.dataType) for field in schema.fields]


def _text(schema: spark.StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
