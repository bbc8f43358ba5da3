"""One query of Nexmark in Flink SQL: `python program.py JOB.json`, in an environment that has `apache-flink` alone.

Three kinds of jobs, one after the other in one JVM. Flink's connector `print` writes to standard output, a file.

    over all files, printed             the rows at the end, as JSON arrays; the JVM is warm from then on
    over all files, without an output   `passes` times, beside the same over no file, whose costs are those of any job
    over a watched folder, printed      milliseconds from a step's files to the last change that they made
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, Schema, Table, TableDescriptor, TableEnvironment, TableResult

QUIET_S = 1.0
"""The changes of a step have ended when nothing was printed for so long."""
FIRST_CHANGE_S = 15.0
SIDE_INPUT = "'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '9999'"
MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
}
"""The settings of Nexmark's own benchmark of Flink: less work for each event, later results."""


@dataclass(frozen=True)
class FlinkJob:
    """`tables`: the columns of each table. `steps`: its files, one for each step. `printed`: standard output's file."""

    sql: str
    tables: Mapping[str, str]
    steps: Mapping[str, list[str]]
    scratch: str
    printed: str
    passes: int
    fresh_steps: int
    cores: int


def main(job: FlinkJob) -> Mapping[str, Any]:
    """`changes`: the end of the printed changes, in bytes. `whole`, `nothing`: the costs of each pass over all files or
    none. `freshness_ms`: of each step that changed the query's rows."""
    scratch = Path(job.scratch)
    whole, empty, watched = (_folders(scratch / name, job.tables) for name in ("whole", "empty", "watched"))
    for table, files in job.steps.items():
        for file in files:
            (whole[table] / Path(file).name).symlink_to(file)
    environment = _environment(job, whole, MINI_BATCH)
    printed = Path(job.printed)
    names = environment.sql_query(job.sql).get_resolved_schema().get_column_names()
    columns = ", ".join(f"`{name}`" for name in names)
    _into("print", environment.sql_query(f"SELECT JSON_ARRAY({columns} NULL ON NULL) FROM ({job.sql})")).wait()
    changes = printed.stat().st_size
    costs = [_cost(environment, job.sql) for _ in range(job.passes)]
    environment = _environment(job, empty, MINI_BATCH)
    idle = [_cost(environment, job.sql) for _ in range(job.passes)]
    freshness = list(_freshness(job, watched, printed))
    return {"changes": changes, "whole": costs, "nothing": idle, "freshness_ms": freshness}


def _freshness(job: FlinkJob, watched: Mapping[str, Path], printed: Path) -> Iterator[float]:
    environment = _environment(job, watched, {}, ", 'source.monitor-interval' = '10 ms'")
    result = _into("print", environment.sql_query(job.sql))
    try:
        for step in range(job.fresh_steps):
            began = time.time_ns()
            for table, files in job.steps.items():
                arriving = Path(job.scratch) / "arriving"
                arriving.symlink_to(files[step])
                arriving.rename(watched[table] / Path(files[step]).name)
            if (last := _last_change(printed, began)) is not None:
                yield (last - began) / 1e6
    finally:
        client = result.get_job_client()
        assert client is not None
        client.cancel().result()


def _last_change(printed: Path, began: int) -> int | None:
    """When it was printed, in nanoseconds since 1970; None where nothing was."""
    while True:
        last, now = printed.stat().st_mtime_ns, time.time_ns()
        if last > began and now - last > QUIET_S * 1e9:
            return last
        if last <= began and now - began > FIRST_CHANGE_S * 1e9:
            return None
        time.sleep(0.02)


def _cost(environment: TableEnvironment, sql: str) -> dict[str, float]:
    """Seconds by the clock, and of CPU time of the JVM."""
    began, cpu = time.perf_counter(), _cpu_seconds()
    _into("blackhole", environment.sql_query(sql)).wait()
    return {"wall": time.perf_counter() - began, "cpu": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    """The processor time of the processes that this one began: the JVM is the only one."""
    children = " ".join(task.read_text() for task in Path("/proc/self/task").glob("*/children")).split()
    stats = (Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split() for child in children)
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def _into(connector: str, rows: Table) -> TableResult:
    schema = Schema.new_builder().from_resolved_schema(rows.get_resolved_schema()).build()
    return rows.execute_insert(TableDescriptor.for_connector(connector).schema(schema).build())


def _environment(
    job: FlinkJob, folders: Mapping[str, Path], options: Mapping[str, str], watch: str = ""
) -> TableEnvironment:
    settings = Configuration()
    cores = {"parallelism.default": str(job.cores), "taskmanager.numberOfTaskSlots": str(job.cores)}
    for name, value in (cores | {"table.local-time-zone": "UTC"} | dict(options)).items():
        settings.set_string(name, value)
    made = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    made.execute_sql("CREATE DATABASE nexmark")
    made.execute_sql(f"CREATE TABLE side_input (id bigint) WITH ('connector' = 'datagen', {SIDE_INPUT})")
    for table, columns in job.tables.items():
        files = f"'connector' = 'filesystem', 'path' = 'file://{folders[table]}', 'format' = 'parquet'"
        source = f"{files}, 'parquet.utc-timezone' = 'true'{watch}"
        made.execute_sql(f"CREATE TABLE nexmark.{table} ({columns}) WITH ({source})")
    return made


def _folders(home: Path, tables: Mapping[str, str]) -> dict[str, Path]:
    for table in tables:
        (home / table).mkdir(parents=True)
    return {table: home / table for table in tables}


if __name__ == "__main__":
    given = FlinkJob(**json.loads(Path(sys.argv[1]).read_text()))
    Path(given.scratch, "figures.json").write_text(json.dumps(main(given)))
