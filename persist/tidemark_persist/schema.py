"""The columns of a shard: the user's, and three system columns.

    user columns ...   __time BIGINT   __diff BIGINT   __error STRING

An *ok* row has a NULL `__error`; an *error* row has NULL in all user columns. User columns are therefore nullable in
the table, whatever the view says. Types are those that every engine reads from Delta Lake unchanged.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from deltalake import Schema as DeltaSchema

from tidemark_persist.errors import InvalidSchema

TIME = "__time"
DIFF = "__diff"
ERROR = "__error"

SYSTEM_FIELDS = (pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64()), pa.field(ERROR, pa.string()))


def physical_schema(user: pa.Schema) -> pa.Schema:
    """The table's schema for these user columns, or `InvalidSchema`."""
    check_names(user.names)
    fields = [pa.field(field.name, canonical_type(field.name, field.type)) for field in user]
    return pa.schema([*fields, *SYSTEM_FIELDS])


def user_schema(physical: pa.Schema) -> pa.Schema:
    """The user columns of a table's schema."""
    return pa.schema([field for field in physical if not field.name.startswith("__")])


def check_names(names: list[str]) -> None:
    """Raises InvalidSchema for empty, reserved and duplicate names. Delta Lake and Spark compare names without case."""
    for name in names:
        if not name:
            raise InvalidSchema("a column has an empty name")
        if name.startswith("__"):
            raise InvalidSchema(f"column {name!r}: names beginning with '__' are reserved; rename it")
    twice = sorted(name for name, count in Counter(name.lower() for name in names).items() if count > 1)
    if twice:
        raise InvalidSchema(f"duplicate column names (compared without case): {', '.join(twice)}; alias them")


def canonical_type(name: str, dtype: pa.DataType) -> pa.DataType:
    """`dtype` as Delta Lake returns it. Raises InvalidSchema where it would return another type."""
    wanted = canonical_layout(dtype)
    if pa.types.is_null(wanted):
        raise InvalidSchema(f"column {name!r} has no type (only NULLs); cast it to one")
    if pa.types.is_timestamp(wanted) and wanted.unit != "us":
        raise InvalidSchema(f"column {name!r} has type {dtype}; Delta Lake keeps microseconds: cast it")
    try:
        kept = pa.schema(DeltaSchema.from_arrow(pa.schema([pa.field(name, wanted)])).to_arrow()).field(0).type
    except Exception as error:  # delta-rs raises bare Exceptions here
        raise InvalidSchema(f"column {name!r} has type {dtype}, which Delta Lake cannot store") from error
    if kept != wanted:
        raise InvalidSchema(f"column {name!r} has type {dtype}, which Delta Lake stores as {kept}; cast it")
    return wanted


def read_schema(file: pa.Schema) -> pa.Schema:
    """The schema as which a file's rows are read: another program may have written other memory layouts."""
    return pa.schema([field.with_type(_read_type(field.type)) for field in file])


def _read_type(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(dtype):
        return _read_type(dtype.value_type)
    if pa.types.is_binary_view(dtype):
        return pa.binary()
    if pa.types.is_timestamp(dtype) and dtype.unit != "us":
        return canonical_layout(pa.timestamp("us", dtype.tz))
    return canonical_layout(dtype)


def canonical_layout(dtype: pa.DataType) -> pa.DataType:
    """The type with the one memory layout that shards use."""
    if pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype):
        return pa.string()
    if pa.types.is_large_binary(dtype) or pa.types.is_binary_view(dtype):
        return pa.binary()
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return pa.timestamp(dtype.unit, "UTC")  # an instant: the zone is how it is shown
    if pa.types.is_map(dtype):
        key = pa.field("key", canonical_layout(dtype.key_type), nullable=False)
        return pa.map_(key, pa.field("value", canonical_layout(dtype.item_type)))
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return pa.list_(pa.field("element", canonical_layout(dtype.value_type)))
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(field.name, canonical_layout(field.type)) for field in dtype])
    return dtype
