"""The data source that Spark finds by its name."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from tidemark.errors import InterfaceError, NotSupportedError
from tidemark.spark.change_feed import CHANGE_COLUMNS, ChangeFeed
from tidemark.spark.columns import schema_of
from tidemark.spark.options import ReadOptions
from tidemark.spark.rows import RowsReader


def register(spark: Any) -> None:
    """Make `format("tidemark")` known to a session."""
    spark.dataSource.register(TidemarkDataSource)


class TidemarkDataSource(DataSource):  # type: ignore[misc]
    """Its columns are those of the relation or query; those of a change follow where option readChangeFeed is true.
    Its methods run on the driver."""

    @classmethod
    def name(cls) -> str:
        return "tidemark"

    def schema(self) -> StructType:
        """The columns as of `asOf`; those of a stream as of now, as a stream that goes on may have begun long ago.

        Raises InterfaceError: an option is wrong, or a column has a name that another or a change's has. As
        Cursor.execute.
        """
        options = self._options()
        as_of = None if options.change_feed else options.as_of
        with options.connect() as connection, connection.cursor() as cursor:
            described = cursor.execute(f"{options.select} LIMIT 0", as_of=as_of).description
        columns = [(name, type) for name, type, *_ in described or ()]
        if not options.change_feed:
            return schema_of(columns)
        if taken := sorted({name.lower() for name, _ in columns} & CHANGE_COLUMNS.keys()):
            raise InterfaceError(f"{taken[0]} is a column of changes: rename the relation's, in option query, by AS")
        return schema_of([*columns, *CHANGE_COLUMNS.items()])

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options()
        if options.change_feed:
            raise NotSupportedError("changes are a stream: use readStream, or leave out option readChangeFeed")
        return RowsReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._options()
        if not options.change_feed:
            raise NotSupportedError(
                "rows of a relation come and go: readStream gives its changes, with option readChangeFeed=true"
            )
        return ChangeFeed(options, schema)

    def _options(self) -> ReadOptions:
        """The user's options, and the namespace, which `options` keeps: later plans and all tasks read the same one."""
        options = ReadOptions.of(self.options)
        self.options["namespace"] = options.connection["namespace"]
        return options
