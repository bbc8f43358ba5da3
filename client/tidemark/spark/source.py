"""The data source that Spark finds by its name."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from tidemark.errors import InterfaceError, NotSupportedError
from tidemark.spark.change_feed import CHANGE_COLUMNS, ChangeFeed
from tidemark.spark.options import ReadOptions
from tidemark.spark.rows import FilteringReader, RowsReader


def register(spark: Any) -> None:
    """Make `format("tidemark")` known to a session."""
    spark.dataSource.register(TidemarkDataSource)


class TidemarkDataSource(DataSource):  # type: ignore[misc]
    """Its columns are those of the relation or query; those of a change follow where option readChangeFeed is true."""

    @classmethod
    def name(cls) -> str:
        return "tidemark"

    def schema(self) -> str:
        """Raises InterfaceError: an option is wrong, or a column has a name that a change's has. As Cursor.execute."""
        options = self._options()
        with options.connect() as connection, connection.cursor() as cursor:
            described = cursor.execute(f"{options.select} LIMIT 0", as_of=options.as_of).description
        columns = {name: type for name, type, *_ in described or ()}
        if options.change_feed:
            if taken := sorted({name.lower() for name in columns} & CHANGE_COLUMNS.keys()):
                raise InterfaceError(
                    f"{taken[0]} is a column of changes: rename the relation's, in option query, by AS"
                )
            columns |= CHANGE_COLUMNS
        return ", ".join(f"`{name.replace('`', '``')}` {type}" for name, type in columns.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options()
        if options.change_feed:
            raise NotSupportedError("changes are a stream: use readStream, or leave out option readChangeFeed")
        return (FilteringReader if options.pushdown else RowsReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._options()
        if not options.change_feed:
            raise NotSupportedError(
                "rows of a relation come and go: readStream gives its changes, with option readChangeFeed=true"
            )
        return ChangeFeed(options, schema)

    def _options(self) -> ReadOptions:
        return ReadOptions.of(self.options)
