"""Flink SQL keeping a query of Nexmark up to date, as a process in an environment of its own, which
`python -m bench.peers.flink_streaming` installs: PyPI's `apache-flink` has the whole engine, and Maven has its Parquet.

Flink takes all events as fast as it can, with the mini-batches of Nexmark's own benchmark, and without checkpoints: an
update of its state is in memory, and its output goes nowhere. Then it takes one step's files after the other, without
mini-batches, and prints its changes. It has no time to live: its state grows for ever, as ours does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from bench.harness.answers import WrongAnswer
from bench.harness.cache import cache_folder, cached
from bench.harness.context import progress
from bench.peers.absent import PeerAbsent
from tidemark_protocol.types import Column

VERSION = "2.3.0"
_VIEWS = Path(__file__).parent / "flink_views"
_SECONDS = 3600
OTHER_TEXTS: Mapping[str, str] = {path.stem: path.read_text() for path in (_VIEWS / "queries").glob("q*.sql")}
"""The texts in Flink's dialect where it differs from Spark's: other functions, words that it reserves, no QUALIFY."""
NOT_EXPRESSED = frozenset({"q06", "q11"})
"""Flink refuses a window function over rows that change (q6), and one by a column that is no time of events (q11)."""
_PASSES = 3
_NOISE = 0.2
"""Jobs without events differ by so much."""
_LOGGING = """rootLogger.level = WARN
rootLogger.appenderRef.file.ref = FileAppender
appender.file.name = FileAppender
appender.file.type = FILE
appender.file.fileName = ${sys:log.file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %-5p %c %m%n
"""


@dataclass(frozen=True)
class FlinkRun:
    """The costs of all events: seconds by the clock and of CPU time, beyond those of a job without events; None where
    the events are too few to tell. `freshness_ms`: of each step that changed rows."""

    wall_s: float | None
    cpu_s: float | None
    freshness_ms: Sequence[float]
    rows: pa.Table


def install() -> Path:
    """The folder with the environment and the jar, made if it is not there (1 GB, some minutes)."""
    return cached(_folder(), _make)


def run(
    name: str,
    sql: str,
    steps: Mapping[str, Path],
    columns: Mapping[str, str],
    wanted: pa.Schema,
    home: Path,
    memory: str,
    fresh_steps: int,
) -> FlinkRun:
    """The query over the files in the folders `steps`, one for each step; rows come as `wanted`.

    Raises PeerAbsent if Flink is not installed, WrongAnswer where it fails.
    """
    if not (_folder() / "bin" / "python").exists():
        raise PeerAbsent(f"Flink is not installed: python -m {__name__}")
    (scratch := home / "flink").mkdir(parents=True)
    (logging := scratch / "log4j.properties").write_text(_LOGGING)
    job = {
        "sql": OTHER_TEXTS.get(name, sql),
        "tables": dict(columns),
        "steps": {table: sorted(map(str, folder.glob("*.parquet"))) for table, folder in steps.items()},
        "scratch": str(scratch),
        "printed": str(scratch / "printed"),
        "passes": _PASSES,
        "fresh_steps": fresh_steps,
        "cores": len(os.sched_getaffinity(0)),
    }
    (scratch / "job.json").write_text(json.dumps(job))
    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "HADOOP_CLASSPATH": os.pathsep.join(map(str, [*hadoop, *(_folder() / "jars").glob("*.jar")])),
        "JVM_ARGS": f"-Xmx{memory}",
        "LOG4J_PROPERTIES": str(logging),
        "FLINK_LOG_DIR": str(scratch),
    }
    command = [_folder() / "bin" / "python", _VIEWS / "program.py", scratch / "job.json"]
    with (scratch / "printed").open("ab") as printed, (scratch / "errors").open("ab") as errors:
        done = subprocess.run(command, stdout=printed, stderr=errors, env=environment, timeout=_SECONDS)
    if done.returncode:
        raise WrongAnswer(f"Flink, {name}: {(scratch / 'errors').read_text()[-2000:]}")
    figures = json.loads((scratch / "figures.json").read_text())
    wall, cpu = (_beyond(figures["whole"], figures["nothing"], clock) for clock in ("wall", "cpu"))
    with (scratch / "printed").open("rb") as printed:
        changes = printed.read(figures["changes"]).decode().splitlines()
    return FlinkRun(wall, cpu, figures["freshness_ms"], rows_of(left_of(changes), wanted))


def _beyond(costs: Sequence[Mapping[str, float]], idle: Sequence[Mapping[str, float]], clock: str) -> float | None:
    """The least seconds of a pass over those of a job without events."""
    least, of_any_job = (min(cost[clock] for cost in each) for each in (costs, idle))
    return least - of_any_job if least > (1 + _NOISE) * of_any_job else None


def column(of: Column) -> str:
    """A column's definition in Flink's words."""
    return f"{of.name} {'timestamp(6)' if of.type.name == 'timestamp' else of.type}"


def left_of(changes: Sequence[str]) -> list[str]:
    """The texts of the rows that are left of printed changes, such as `1> +I[[1, "a"]]`. Raises WrongAnswer."""
    counts: Counter[str] = Counter()
    for line in changes:
        change, row = line.split("[", 1)
        counts[row.removesuffix("]")] += 1 if change.endswith(("+I", "+U")) else -1
    if min(counts.values(), default=0) < 0:
        raise WrongAnswer("Flink took back more rows than it gave")
    return list(counts.elements())


def rows_of(texts: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Rows that are JSON arrays, as a table of the schema; times are texts in UTC there."""
    rows = [json.loads(text, parse_float=Decimal) for text in texts]
    columns = zip(*rows, strict=True) if rows else [() for _ in schema]
    return pa.table([_column(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema)


def _column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        texts = pa.array([value and value.replace("T", " ").removesuffix("Z") for value in values], pa.string())
        return texts.cast(pa.timestamp("us")).cast(type_) if type_.tz is None else _of_zone(texts, type_)
    if pa.types.is_floating(type_):
        return pa.array([None if value is None else float(value) for value in values], type_)
    return pa.array(values, type_)


def _of_zone(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    return texts.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us", "UTC")).cast(type_)


def _folder() -> Path:
    return cache_folder() / "peers" / f"flink-{VERSION}"


def _make(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", f"apache-flink=={VERSION}"], check=True)
    artifact = f"-Dartifact=org.apache.flink:flink-sql-parquet:{VERSION}"
    into = f"-DoutputDirectory={folder / 'jars'}"
    subprocess.run(["mvn", "-q", "-B", "dependency:copy", artifact, into], check=True)


if __name__ == "__main__":
    progress(f"Flink: {install()}")
