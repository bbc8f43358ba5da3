"""The lookup as one would write it without an index: Spark SQL over the materialized view's Delta table.

The table's data files are read as Parquet, which spares Spark the reading of the Delta log. Spark runs with its default
settings and is warm.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

WARM_UP = 3


class SparkLookup:
    """The present rows of one key: added and not retracted."""

    def __init__(self, table: Path) -> None:
        self._table = table

    def times(self, keys: Sequence[int]) -> list[float]:
        """Milliseconds of the lookup of each key."""
        quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
        session = SparkSession.builder.master("local[*]").config(map=quiet).getOrCreate()
        try:
            files = DeltaTable(str(self._table)).file_uris()
            updates = session.read.parquet(*files)
            updates.createOrReplaceTempView("updates")
            columns = ", ".join(c for c in updates.columns if not c.startswith("__"))

            def look(key: int) -> float:
                began = time.perf_counter()
                session.sql(
                    f"SELECT {columns} FROM updates WHERE l_orderkey = {key} AND __error IS NULL "
                    f"GROUP BY {columns} HAVING sum(__diff) <> 0"
                ).collect()
                return (time.perf_counter() - began) * 1e3

            for key in keys[:WARM_UP]:
                look(key)
            return [look(key) for key in keys]
        finally:
            session.stop()
