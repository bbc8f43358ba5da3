"""Runs SQL statements, one a line (JSON texts) on standard input; answers `ok`, or the error, to each.

Arguments: its jars, and further settings as JSON.
It runs in the environment of `spark_writer.py`, which has none of Tidemark's packages.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.jars": sys.argv[1],
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def main() -> None:
    builder = SparkSession.builder.master("local[1]")
    for name, value in {**SETTINGS, **json.loads(sys.argv[2])}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            session.sql(json.loads(line)).collect()
            print("ok", flush=True)
        except Exception as error:
            print("error " + " ".join(str(error).split())[:500], flush=True)
    session.stop()


if __name__ == "__main__":
    main()
