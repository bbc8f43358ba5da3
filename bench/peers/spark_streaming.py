"""Spark Structured Streaming keeping a query of Nexmark up to date: a micro-batch for each step's files.

A process of its own, with as many shuffle partitions as cores and defaults otherwise. `foreachBatch` collects what a
batch gives: new rows (append), or the groups that changed (update), of which the newest of each key are the answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.harness.answers import WrongAnswer

LAST_BIDS = """
SELECT auction, bidder, last.price AS price, last.channel AS channel, last.url AS url, last.date_time AS date_time,
  last.extra AS extra
FROM (
  SELECT auction, bidder, max(struct(date_time, price, extra, channel, url)) AS last FROM bid GROUP BY auction, bidder
)
"""
KEYS: Mapping[str, int] = {"q17": 2, "q18": 2}
"""The number of first columns that are the key of a query whose rows change; others have new rows alone."""
OTHER_TEXTS: Mapping[str, str] = {"q18": LAST_BIDS}
EXPRESSED = frozenset({"q00", "q01", "q02", "q03", "q10", "q13", "q14", "q17", "q18", "q20", "q21", "q22"})
"""The others aggregate what is aggregated or joined, count distinct values, or rank: Structured Streaming refuses
these, or needs watermarks, which drop late events and hold rows back. q3 and q20 keep all rows of both sides for ever:
there is no time to live."""


@dataclass(frozen=True)
class StreamJob:
    """`folders`: the Parquet files of each table, by its name. `answer`: where the rows go."""

    sql: str
    folders: Mapping[str, str]
    schemas: Mapping[str, str]
    mode: str
    keys: int
    answer: str
    scratch: str
    memory: str


def run(name: str, sql: str, folders: Mapping[str, Path], schemas: Mapping[str, str], home: Path, memory: str) -> Any:
    """(milliseconds of each micro-batch, the rows at the end). Raises WrongAnswer where Spark fails."""
    home.mkdir(parents=True, exist_ok=True)
    text = OTHER_TEXTS.get(name, sql.replace("nexmark.", ""))
    keys, answer = KEYS.get(name, 0), home / "answer.arrow"
    mode = "update" if keys else "append"
    paths = {table: str(folder) for table, folder in folders.items()}
    job = StreamJob(text, paths, schemas, mode, keys, str(answer), str(home / "scratch"), memory)
    command = [sys.executable, "-m", __name__, json.dumps(asdict(job))]
    with (home / "spark.log").open("ab") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log)
    if done.returncode:
        raise WrongAnswer(f"Spark Structured Streaming, {name}: {(home / 'spark.log').read_text()[-2000:]}")
    with pa.ipc.open_file(answer) as file:
        return json.loads(done.stdout.splitlines()[-1]), file.read_all()


def main(job: StreamJob) -> list[float]:
    """Run the stream over all files, one of each table in a batch."""
    from pyspark.sql import SparkSession

    cores = str(len(os.sched_getaffinity(0)))
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    options = {
        "spark.driver.memory": job.memory,
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.local.dir": job.scratch,
    }
    for option, value in options.items():
        builder = builder.config(option, value)
    spark = builder.getOrCreate()
    for table, folder in job.folders.items():
        reader = spark.readStream.schema(job.schemas[table]).option("maxFilesPerTrigger", 1)
        reader.parquet(folder).createOrReplaceTempView(table)
    batches: list[pa.Table] = []
    writer = spark.sql(job.sql).writeStream.outputMode(job.mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{job.scratch}/checkpoint")
    query = writer.foreachBatch(lambda rows, _: batches.append(rows.toArrow())).start()
    query.awaitTermination()
    times = [float(each["durationMs"]["triggerExecution"]) for each in query.recentProgress if each["numInputRows"]]
    table = newest(batches, job.keys)
    with pa.OSFile(job.answer, "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    spark.stop()
    return times


def newest(batches: Sequence[pa.Table], keys: int) -> pa.Table:
    """The last row of each key, or all rows where there is none."""
    table = pa.concat_tables(batches).combine_chunks()
    if not keys:
        return table
    names = table.column_names[:keys]
    numbered = table.append_column("__row", pa.array(range(table.num_rows), pa.int64()))
    last = numbered.group_by(names).aggregate([("__row", "max")]).column("__row_max")
    return table.take(last)


if __name__ == "__main__":
    print(json.dumps(main(StreamJob(**json.loads(sys.argv[1])))))
