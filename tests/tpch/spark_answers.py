"""Spark's answers to the queries over the stream's tables at a time.

The tables are files that are written once: rows that are given to Spark at each question stay in its heap of 1 GiB,
which 50 questions fill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.oracle.check import rounded
from tests.oracle.harness import plain
from tests.tpch.maintained import QUERIES
from tests.tpch.stream import INITIAL, Stream
from tidemark_replica.storage.tpch.tables import CHANGING, TABLES


class SparkAnswers:
    """Batches over a stream's tables, whose files are in a folder."""

    def __init__(self, spark: Any, stream: Stream, folder: Path) -> None:
        self._stream, self._folder = stream, folder
        self._session = spark.newSession()
        self._session.conf.set("spark.sql.shuffle.partitions", "1")
        self._session.conf.set("spark.sql.optimizer.excludedRules", "")
        self._frames: dict[tuple[str, int], Any] = {}

    def at(self, name: str, time: int) -> Mapping[Any, int]:
        """The rows of a query, and how often each is there."""
        for table in TABLES:
            if table in QUERIES[name]:
                self._frame(table, time if table in CHANGING else INITIAL).createOrReplaceTempView(table)
        return counted(self._session.sql(QUERIES[name]).toArrow())

    def _frame(self, table: str, time: int) -> Any:
        if (table, time) not in self._frames:
            file = self._folder / table / f"{time}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(self._stream.contents(table, time), file)
            self._frames[table, time] = self._session.read.parquet(str(file))
        return self._frames[table, time]


def counted(found: Any) -> Mapping[Any, int]:
    rows = zip(*(c.to_pylist() for c in found.columns), strict=True)
    return rounded(Counter(tuple(map(plain, row)) for row in rows))
