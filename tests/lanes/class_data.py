"""An archive of the classes that Spark's JVMs load, which JVMs of tests map instead of parsing and verifying them.

`python -m tests.lanes.class_data FILE` runs jobs such as a replica's, and has the JVM write FILE when it ends: about
half a minute of CPU, and 165 MB. A system of an end-to-end test starts three JVMs; the archive saves each of them
about three seconds of CPU. A JVM ignores an archive that does not fit its class path or version.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tests.lanes.ledger import CHECKOUT
from tidemark_replica.spark import session as spark_session
from tidemark_replica.spark.session import SparkHolder, start_spark

ARCHIVE = CHECKOUT / ".tidemark" / "spark.jsa"
OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable whose options Spark gives to a driver's JVM."""
WRITTEN_SECONDS = 600.0
QUERIES = (
    "SELECT k, sum(id) AS s, count(DISTINCT id), max(name) FROM rows GROUP BY k ORDER BY s LIMIT 3",
    "SELECT * FROM rows a JOIN rows b ON a.id = b.k WHERE a.name LIKE '1%'",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM rows",
    "SELECT try_cast('x' AS int), date '2024-01-01' + interval 1 day, from_json('{}', 'a int'), round(1.25BD, 1)",
)


def jvm_options() -> dict[str, str]:
    """The environment of processes that start JVMs; nothing where there is no archive."""
    if not ARCHIVE.exists():
        return {}
    archived = f"-XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:cds*=off"
    return {OPTIONS: f"{os.environ.get(OPTIONS, '')} {archived}".strip()}


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def write(archive: Path) -> None:
    """Replace the archive by one of a JVM that ends here."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    spark_session.STOP_SECONDS = WRITTEN_SECONDS
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=archive.parent) as written:
        os.environ[OPTIONS] = f"-XX:ArchiveClassesAtExit={written}/classes -Xlog:cds*=off"
        holder = SparkHolder(lambda: start_spark("local[2, 2]", "1g", Path(folder)))
        run_jobs(holder.get(), Path(folder))
        holder.stop()
        os.replace(f"{written}/classes", archive)


def run_jobs(spark: object, folder: Path) -> None:
    """An exchange, Python on the way, files, joins, aggregates, windows."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    assert isinstance(spark, SparkSession)
    rows = spark.range(1000).select("id", (F.col("id") % 10).alias("k"), F.col("id").cast("string").alias("name"))
    rows.limit(100).write.parquet(str(folder / "rows"))
    spark.read.parquet(str(folder / "rows")).count()
    rows.repartition(2, "k").mapInArrow(unchanged, rows.schema).createOrReplaceTempView("rows")
    for query in QUERIES:
        spark.sql(query).toArrow()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
