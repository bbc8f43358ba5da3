"""`warm.py ARCHIVE`: runs jobs such as a replica's, and has the JVM write the classes that it loaded to ARCHIVE.

A JVM that maps the archive finds them parsed and verified. More classes than a run needs cost some bytes of the image,
one that is missing costs a moment at a start: this is no list that must be right.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

# of what runs on a cluster only
CLUSTER_CLASSES = (
    "org.apache.spark.scheduler.cluster.k8s.KubernetesClusterManager",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    "io.fabric8.kubernetes.client.impl.KubernetesClientImpl",
)


def through_python(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def run_jobs(spark: SparkSession, folder: Path) -> None:
    """Reads and writes of files, an exchange, Python on the way, joins, aggregates, windows, and errors of ANSI SQL."""
    rows = spark.range(10_000).select("id", (F.col("id") % 10).alias("key"), F.col("id").cast("string").alias("name"))
    for form in ("parquet", "json", "csv", "orc"):
        rows.limit(100).write.format(form).save(str(folder / form))
        spark.read.schema(rows.schema).format(form).load(str(folder / form)).count()
    exchanged = rows.repartition(4, "key").mapInArrow(through_python, rows.schema)
    exchanged.createOrReplaceTempView("rows")
    spark.sql("SELECT key, sum(id), count(DISTINCT name), max(name) FROM rows GROUP BY key ORDER BY key").collect()
    spark.sql("SELECT * FROM rows a JOIN rows b ON a.id = b.key WHERE a.name LIKE '1%'").collect()
    spark.sql("SELECT key, row_number() OVER (PARTITION BY key ORDER BY id) AS n FROM rows").where("n < 3").toArrow()
    spark.sql("SELECT try_cast('x' AS int), date '2024-01-01' + interval 1 day, from_json('{}', 'a int')").collect()


def main(archive: str) -> None:
    # while an image is built its own name leads nowhere, and Spark asks for the address of it
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = f"-XX:ArchiveClassesAtExit={archive} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.driver.extraJavaOptions", options).config("spark.sql.ansi.enabled", "true").getOrCreate()
    )
    with tempfile.TemporaryDirectory() as folder:
        run_jobs(spark, Path(folder))
    for name in CLUSTER_CLASSES:
        spark._jvm.java.lang.Class.forName(name)
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends by itself, and writes the archive on the way
    gateway.proc.wait(timeout=300)
    if not Path(archive).is_file():
        raise SystemExit(f"the JVM ended ({gateway.proc.returncode}) without writing {archive}")


if __name__ == "__main__":
    main(sys.argv[1])
