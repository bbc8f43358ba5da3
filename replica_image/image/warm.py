"""`warm.py ARCHIVE`: runs jobs such as a replica's, and has the JVM write the classes that it loaded to ARCHIVE.

Drivers and executors map the same archive, and find its classes parsed and verified. More classes than a run needs cost
some bytes of the image, one that is missing costs a moment at a start: this is no list that must be right.
"""

import faulthandler
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

LONGEST_SECONDS = 3600.0
"""It takes less than a minute, unless a processor is imitated. A build that would hang fails, and says where."""
ENDS_SECONDS = 300.0
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
CLUSTER_CLASSES = (
    "org.apache.spark.scheduler.cluster.k8s.KubernetesClusterManager",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
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


def load_kubernetes_client(spark: SparkSession) -> None:
    """Load what only a driver with executors loads: its scheduler, and the API server's client, which calls nobody."""
    jvm: Any = spark._jvm
    for name in CLUSTER_CLASSES:
        jvm.java.lang.Class.forName(name)
    jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build().close()


def main(archive: str) -> None:
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
    # while an image is built its own name leads nowhere, and Spark asks for the address of it
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={archive} {JVM}")
    spark = builder.config("spark.sql.ansi.enabled", "true").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        run_jobs(spark, Path(folder))
    load_kubernetes_client(spark)
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends by itself, and writes the archive on the way
    gateway.proc.wait(ENDS_SECONDS)
    if not Path(archive).is_file():
        raise SystemExit(f"the JVM ended ({gateway.proc.returncode}) without writing {archive}")


if __name__ == "__main__":
    main(sys.argv[1])
