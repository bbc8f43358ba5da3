"""One read: the rows of a SELECT as of one time.

planned: the newest complete time ──► a task: SELECT ... as of it ──► batches of Arrow

The time is selected when Spark plans, and a task that is repeated reads the same rows. There is one task, as the
gateway sends one stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidemark.errors import DataError
from tidemark.spark.filters import condition
from tidemark.spark.options import ReadOptions


class RowsReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema, self._where = options, schema, ""

    @property
    def _select(self) -> str:
        return self._options.select + (f" WHERE {self._where}" if self._where else "")

    def partitions(self) -> list[InputPartition]:
        """One, whose value is the time."""
        if self._options.as_of is not None:
            return [InputPartition(self._options.as_of)]
        with self._options.connect() as connection, connection.cursor() as cursor:
            return [InputPartition(cursor.execute(f"{self._select} LIMIT 0").as_of)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises DataError: the time cannot be read any more."""
        wanted = arrow_schema(self._schema)
        with self._options.connect() as connection, connection.cursor() as cursor:
            try:
                cursor.execute(self._select, as_of=partition.value)
            except DataError as error:
                raise DataError(
                    f"{error}. A DataFrame is planned for one time, and can be read for as long as readPolicy.lag of "
                    "the instance keeps that time: load it again",
                    error.code,
                ) from None
            for batch in cursor.fetch_batches():
                yield fitting(batch, wanted)


class FilteringReader(RowsReader):
    """It also lets the gateway filter."""

    def pushFilters(self, filters: list[Any]) -> Sequence[Any]:
        self._where = condition(filters)
        return filters


def arrow_schema(schema: StructType) -> pa.Schema:
    """The one that Spark wants of batches."""
    return to_arrow_schema(schema, timezone="UTC")


def fitting(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with Spark's names of fields and elements. Raises pa.ArrowInvalid where a value does not fit."""
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
