"""Spark's answer to a query over the stream's tables at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.oracle.check import rounded
from tests.oracle.harness import plain
from tests.tpch.maintained import QUERIES
from tests.tpch.stream import Stream
from tidemark_replica.storage.tpch.tables import TABLES


def spark_answer(spark: Any, stream: Stream, name: str, time: int) -> Mapping[Any, int]:
    """Rows and how often each is there."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.optimizer.excludedRules", "")
    for table in TABLES:
        if table in QUERIES[name]:
            session.createDataFrame(stream.contents(table, time)).createOrReplaceTempView(table)
    return counted(session.sql(QUERIES[name]).toArrow())


def counted(found: Any) -> Mapping[Any, int]:
    rows = zip(*(c.to_pylist() for c in found.columns), strict=True)
    return rounded(Counter(tuple(map(plain, row)) for row in rows))
