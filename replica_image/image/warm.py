"""`warm.py ARCHIVE`: runs jobs such as a replica's, and has the JVM write the classes that it loaded to ARCHIVE.

    driver ──► an API server of our own (api_server.py) ──► an executor: the jobs run there
       ▲ loads what the executor said that it loaded: one archive serves both

A JVM that maps the archive finds them parsed and verified. More classes than a run needs cost some bytes of the image,
one that is missing costs a moment at a start: this is no list that must be right.
"""

import faulthandler
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from api_server import DRIVER, HOST, ApiServer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ENTRYPOINT = "/opt/tidemark/image/entrypoint"
LONGEST_SECONDS = 3600.0
"""It takes less than a minute, unless a processor is imitated. A build that would hang fails, and says where."""
ENDS_SECONDS = 300.0
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
LOADED = re.compile(r"^\[.*\] ([\w.$]+) source: ", re.MULTILINE)
"""A line of -Xlog:class+load; classes that are made while it runs have names of another kind."""


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


def on_executors(server: ApiServer, folder: Path) -> Mapping[str, str]:
    """What a driver is told that has executors in pods, as far as it decides which classes are loaded."""
    (folder / "secret").write_text("x" * 32)
    (folder / "token").write_text("none")
    kubernetes = "spark.kubernetes"
    return {
        "spark.master": f"k8s://{server.url}",
        f"{kubernetes}.authenticate.caCertFile": str(server.certificate),
        f"{kubernetes}.authenticate.oauthTokenFile": str(folder / "token"),
        f"{kubernetes}.container.image": "this",
        f"{kubernetes}.driver.pod.name": DRIVER,
        f"{kubernetes}.executor.disableConfigMap": "true",
        f"{kubernetes}.driver.ownPersistentVolumeClaim": "false",
        f"{kubernetes}.driver.reusePersistentVolumeClaim": "false",
        f"{kubernetes}.driver.service.deleteOnTermination": "false",
        "spark.submit.deployMode": "client",
        "spark.executor.instances": "1",
        "spark.executor.cores": "2",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": f"{JVM} -Xlog:class+load:file={folder}/loaded",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": str(folder / "secret"),
        "spark.network.crypto.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
    }


def load(spark: SparkSession, said: str) -> None:
    """What the executor loaded, in the driver too; some of it only runs where it does."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in LOADED.findall(said):
        try:
            jvm.java.lang.Class.forName(name, False, loader)
        except Exception as error:
            print(f"{name} is not in the archive: {str(error).splitlines()[0]}")


def main(archive: str) -> None:
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
    # while an image is built its own name leads nowhere, and Spark asks for the address of it
    os.environ["SPARK_LOCAL_IP"] = HOST
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):  # of the build: there is nothing beyond it here
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.environ["SPARK_LOCAL_DIRS"] = str(folder / "local")  # also where executors are told to work
        server = ApiServer(folder, [ENTRYPOINT])
        builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.ansi.enabled", "true")
        builder = builder.config("spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={archive} {JVM}")
        for name, value in on_executors(server, folder).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        run_jobs(spark, folder)
        load(spark, (folder / "loaded").read_text())
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # it ends by itself, and writes the archive on the way
        gateway.proc.wait(ENDS_SECONDS)
        for executor in server.executors:
            executor.wait(ENDS_SECONDS)
    if not Path(archive).is_file():
        raise SystemExit(f"the JVM ended ({gateway.proc.returncode}) without writing {archive}")


if __name__ == "__main__":
    main(sys.argv[1])
