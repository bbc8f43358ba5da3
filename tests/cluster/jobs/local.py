"""A replica's own Spark session in a pod: each form of file, an exchange through Python, and the planner's session."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tidemark_replica.spark.session import SparkHolder, start_spark


def through_python(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main() -> None:
    holder = SparkHolder(lambda: start_spark("local[1]", "512m", Path("/tmp/scratch")))
    spark = holder.get()
    rows = spark.range(1000).selectExpr("id", "id % 10 AS key")
    counts = {}
    for form in ("parquet", "json", "csv", "orc"):
        folder = f"/tmp/files/{form}"
        rows.write.format(form).save(folder)
        counts[form] = spark.read.schema(rows.schema).format(form).load(folder).count()
    exchanged = rows.repartition(2, "key").mapInArrow(through_python, rows.schema)
    sums = exchanged.groupBy("key").sum("id").orderBy("key").collect()
    jvm = Path("/proc", str(spark._jvm.java.lang.ProcessHandle.current().pid()), "maps")
    mapped = "/opt/tidemark/spark/classes.jsa" in jvm.read_text()
    print(json.dumps({"counts": counts, "sum": sum(row[1] for row in sums), "mapped": mapped}))
    holder.stop()


if __name__ == "__main__":
    main()
