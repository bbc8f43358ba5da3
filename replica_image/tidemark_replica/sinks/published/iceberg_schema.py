"""The columns of a published table as an Iceberg table has them: version 2 of the format, all of them optional.

    BOOLEAN FLOAT DOUBLE DECIMAL DATE STRING BINARY TIMESTAMP TIMESTAMP_NTZ ARRAY MAP STRUCT    the same
    TINYINT SMALLINT INT                                                                        int
    BIGINT                                                                                      long

The data files are those of the Delta table and have no field ids: readers find columns by the table's name mapping.
"""

from __future__ import annotations

import itertools

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from tidemark_replica.sinks.destinations.destination import DestinationStopped

RESERVED = frozenset(
    "_file _pos _deleted _spec_id _partition _row_id _last_updated_sequence_number _change_type _change_ordinal "
    "_commit_snapshot_id".split()
)
"""Columns that readers of Iceberg tables add."""
_PRIMITIVES: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int8(): IntegerType(),
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(),
    pa.timestamp("us"): TimestampType(),
}


def iceberg_schema(columns: pa.Schema, last_id: int = 0, schema_id: int = 0) -> Schema:
    """The columns with ids from `last_id + 1` on. Raises DestinationStopped where an Iceberg table cannot have one."""
    ids = itertools.count(1)
    fields = [_field(each, each.name, ids) for each in columns]
    if reserved := sorted(RESERVED.intersection(columns.names)):
        raise _impossible(reserved[0], "has a name that readers of Iceberg tables use themselves")
    fresh = assign_fresh_schema_ids(Schema(*fields), itertools.count(last_id + 1).__next__)
    return Schema(*fresh.fields, schema_id=schema_id)


def is_same(one: Schema, other: Schema) -> bool:
    """Whether both have the same columns, whatever their ids."""
    return assign_fresh_schema_ids(one).as_struct() == assign_fresh_schema_ids(other).as_struct()


def name_mapping(schema: Schema) -> str:
    """The ids of the columns by their names, in JSON."""
    return create_mapping_from_schema(schema).model_dump_json()


def _field(field: pa.Field, path: str, ids: itertools.count[int]) -> NestedField:
    if "." in field.name:
        raise _impossible(path, "has a dot in its name, which separates levels in Iceberg")
    return NestedField(next(ids), field.name, _type(field.type, path, ids), required=False)


def _type(type: pa.DataType, path: str, ids: itertools.count[int]) -> IcebergType:
    if (found := _PRIMITIVES.get(type)) is not None:
        return found
    if pa.types.is_timestamp(type) and type.unit == "us":
        return TimestamptzType()
    if pa.types.is_decimal(type):
        return DecimalType(type.precision, type.scale)
    if pa.types.is_struct(type):
        return StructType(*(_field(each, f"{path}.{each.name}", ids) for each in type))
    if pa.types.is_map(type):
        key, value = _type(type.key_type, f"{path}.key", ids), _type(type.item_type, f"{path}.value", ids)
        return MapType(next(ids), key, next(ids), value, value_required=False)
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        element = _type(type.value_type, f"{path}.element", ids)
        return ListType(next(ids), element, element_required=False)
    raise _impossible(path, f"is of type {type}, which Iceberg has not")


def _impossible(path: str, why: str) -> DestinationStopped:
    return DestinationStopped(
        "IcebergNotPossible",
        f"column {path} {why}: rename it, cast it or take it out in the SQL, or take iceberg out of publish",
    )
