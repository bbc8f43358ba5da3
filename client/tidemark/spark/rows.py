"""One read: the rows of a SELECT as of one time.

planned: the newest complete time ──► a task: SELECT ... as of it ──► batches of Arrow

The time is selected when Spark plans, and a task that is repeated reads the same rows. There is one task, as the
gateway sends one stream.

There is no `pushFilters`: Spark 4.3 keeps the reader that filters, with its filters, for all later reads of the same
DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidemark.errors import DataError
from tidemark.spark.columns import check_columns
from tidemark.spark.options import ReadOptions


class RowsReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> list[InputPartition]:
        """One, whose value is the time."""
        if self._options.as_of is not None:
            return [InputPartition(self._options.as_of)]
        with self._options.connect() as connection, connection.cursor() as cursor:
            return [InputPartition(cursor.execute(f"{self._options.select} LIMIT 0").as_of)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows as of the partition's time.

        Raises:
            DataError: the time cannot be read any more.
            RelationChanged: the columns are not those of `load()`.
        """
        wanted = arrow_schema(self._schema)
        with self._options.connect() as connection, connection.cursor() as cursor:
            try:
                cursor.execute(self._options.select, as_of=partition.value)
            except DataError as error:
                raise DataError(
                    f"{error}. A DataFrame is planned for one time, and can be read for as long as readPolicy.lag of "
                    "the instance keeps that time: load it again",
                    error.code,
                ) from None
            described = [(name, type) for name, type, *_ in cursor.description or ()]
            check_columns(self._options.subject, self._schema, described)
            for batch in cursor.fetch_batches():
                yield fitting(batch, wanted)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The one that Spark wants of batches."""
    return to_arrow_schema(schema, timezone="UTC")


def fitting(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with Spark's names of fields and elements. Raises pa.ArrowInvalid where a value does not fit."""
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
