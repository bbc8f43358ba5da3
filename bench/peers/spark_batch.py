"""Spark computing a query as a batch: from Parquet, and from tables that it has cached.

A process of its own with Spark's default settings (adaptive execution, all optimiser rules, full JIT), as a user of
Spark would run it: `python -m bench.peers.spark_batch JOB`, where JOB is JSON of a `SparkJob`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.harness.clock import Cost, measured
from bench.harness.workload.queries import Query
from bench.harness.workload.tpch import Tables


@dataclass(frozen=True)
class SparkJob:
    """A job: the query over files, and its number of runs; `columns`: the columns of each table, for the cache."""

    sql: str
    files: Mapping[str, str]
    columns: Mapping[str, Sequence[str]]
    answer: str
    memory: str
    repeat: int
    cached: bool


@dataclass(frozen=True)
class SparkCosts:
    """The cost of each run of the query."""

    parquet: Sequence[Cost]
    cached: Sequence[Cost]

    @staticmethod
    def from_json(text: bytes) -> SparkCosts:
        """The value that `asdict` and JSON made."""
        return SparkCosts(**{name: [Cost(**cost) for cost in costs] for name, costs in json.loads(text).items()})


def recompute(
    tables: Tables, query: Query, folder: Path, memory: str, repeat: int = 3, *, cached: bool = True
) -> tuple[SparkCosts, pa.Table]:
    """The costs, and the query's rows."""
    answer = folder / f"spark-{query.name}.arrow"
    files = {name: str(tables[name].file) for name in query.tables}
    columns = {name: [c for c in tables[name].schema.names if c in query.sql] for name in query.tables}
    job = SparkJob(query.plain, files, columns, str(answer), memory, repeat, cached)
    command = [sys.executable, "-m", "bench.peers.spark_batch", json.dumps(asdict(job))]
    with (folder / "spark.log").open("ab") as log:
        printed = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, check=True).stdout
    with pa.ipc.open_file(str(answer)) as file:
        return SparkCosts.from_json(printed.splitlines()[-1]), file.read_all()


def run(job: SparkJob) -> SparkCosts:
    """Run it here, and leave the rows in a file."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = len(os.sched_getaffinity(0))
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.driver.memory", job.memory)
    builder = builder.config("spark.sql.shuffle.partitions", str(cores)).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    session = builder.getOrCreate()
    try:
        for name, file in job.files.items():
            session.read.parquet(file).createOrReplaceTempView(name)
        parquet, rows = _measure(lambda: session.sql(job.sql).toArrow(), job.repeat)
        kept: list[Cost] = []
        if job.cached:
            for name, columns in job.columns.items():
                session.table(name).select(list(columns)).cache().createOrReplaceTempView(name)
            kept, _ = _measure(lambda: session.sql(job.sql).toArrow(), job.repeat)
    finally:
        session.stop()
    with pa.OSFile(job.answer, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return SparkCosts(parquet, kept)


def _measure(query: Callable[[], pa.Table], repeat: int) -> tuple[list[Cost], Any]:
    query()  # once to warm up
    runs = [measured(query) for _ in range(repeat)]
    return [cost for cost, _ in runs], runs[-1][1]


if __name__ == "__main__":
    print(json.dumps(asdict(run(SparkJob(**json.loads(sys.argv[1]))))))
