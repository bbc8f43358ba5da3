"""The partitions of an Iceberg table: those of the Delta table whose files it names.

    Delta's log       partitionValues {"day": "2026-11-26", "country": null}
    Iceberg           spec [identity(day), identity(country)]     manifest entry: {day_1000: 20783, country_1001: null}

The files do not have these columns. Readers take the values of identity transforms from the manifest, as the format
says. The types are those that Delta tables are partitioned by (`can_partition` of the protocol), which are exact here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.published.partitions import Partition

PARTITION_BY = "tidemark.partition-by"
"""The property of the Iceberg table that has its partition columns, in JSON."""
LAST_FIELD_ID = PARTITION_FIELD_ID_START - 1
"""Before the first partition field of a table."""
_VALUES: Mapping[type[IcebergType], Callable[[str], object]] = {
    BooleanType: lambda text: text == "true",
    IntegerType: int,
    LongType: int,
    DateType: lambda text: date_to_days(date.fromisoformat(text)),
    DecimalType: Decimal,
    TimestampType: lambda text: datetime_to_micros(datetime.fromisoformat(text)),
    TimestamptzType: lambda text: datetime_to_micros(datetime.fromisoformat(text)),
    StringType: str,
}


def partition_columns_text(columns: Sequence[str]) -> str:
    """The value of PARTITION_BY."""
    return json.dumps(list(columns))


def partition_spec(
    schema: Schema, columns: Sequence[str], spec_id: int = 0, last_id: int = LAST_FIELD_ID
) -> PartitionSpec:
    """The spec with ids of fields from `last_id + 1` on. Raises DestinationStopped where a column cannot be in one."""
    for name in columns:
        if type(of := schema.find_field(name).field_type) not in _VALUES:
            raise DestinationStopped(
                "IcebergNotPossible",
                f"column {name} is of type {of}, whose values partitions of an Iceberg table would not have exactly: "
                "take it out of partitionBy, or take iceberg out of publish",
            )
    fields = (
        PartitionField(schema.find_field(name).field_id, id, IdentityTransform(), _field_name(name, id, schema))
        for id, name in enumerate(columns, last_id + 1)
    )
    return PartitionSpec(*fields, spec_id=spec_id)


def _field_name(column: str, id: int, schema: Schema) -> str:
    """The name of a partition field, which is no column's: specs stay in the metadata, and where the columns get new
    ids, a field with the name of a column that it is not from makes the table unreadable for Iceberg's own library."""
    name = f"{column}_{id}"
    while name in schema.column_names:
        name += "_"
    return name


def found_spec(specs: Iterable[PartitionSpec], schema: Schema, columns: Sequence[str]) -> PartitionSpec | None:
    """The spec that the table has for the columns already; None: it has none."""
    ids = [field.field_id for name in columns for field in schema.fields if field.name == name]
    for spec in specs:
        is_identity = all(isinstance(field.transform, IdentityTransform) for field in spec.fields)
        if is_identity and [field.source_id for field in spec.fields] == ids and len(ids) == len(columns):
            return spec
    return None


def partition_record(schema: Schema, spec: PartitionSpec, partition: Partition) -> Record:
    """The partition of a file as a manifest has it. `partition`: the texts of Delta's log."""
    types = (type(schema.find_type(field.source_id)) for field in spec.fields)
    return Record(*(None if text is None else _VALUES[of](text) for of, text in zip(types, partition, strict=True)))
