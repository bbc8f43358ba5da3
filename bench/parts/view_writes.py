"""The first write and a correction of a large view's table, by one thread of the driver and by Spark's tasks.

    python -m bench.parts.view_writes [--rows 5000000] [--cores 2]

Each side is a process of its own, over the same staged files. The correction finds a table of which one row in a
hundred is another one. `first_ratio`, `correction_ratio`: the seconds by tasks over those by the driver, by the clock;
`first_cpu_ratio`, `correction_cpu_ratio`: by CPU of the process with its descendants;
`first_memory_ratio`, `correction_memory_ratio`: the same of the most memory that the driver took for it beyond what it
had before (its process, not the JVM or the tasks). The tables of both sides must have the same contents. Spark has
started, and has run a job. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from bench.harness.answers import WrongAnswer
from bench.harness.clock import measured
from bench.harness.context import context, progress
from bench.harness.peaks import sampled_peak
from tidemark_persist import DIFF, ERROR, TIME, Shard, create_or_open, set_spill_folder
from tidemark_protocol.ids import GlobalId, Time
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.sink_progress import SinkProgress, Staged
from tidemark_replica.sinks.table.materialized_view import append_to
from tidemark_replica.sinks.table.task_writes import TaskWriter
from tidemark_replica.spark.session import start_spark

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(15, 2)), ("kind", pa.string())])
OURS = [(TIME, pa.int64()), (DIFF, pa.int64()), (ERROR, pa.string())]
STAGED = pa.schema([*((f"c{i}", kind) for i, kind in enumerate(COLUMNS.types)), *OURS])
FILES, BATCH_ROWS = 8, 65_536
AS_OF = 10
CONTENTS = """
    SELECT sum(n), sum(n * id), sum(n * price), bit_xor(hash(id, name, price, kind)) FROM (
        SELECT id, name, price, kind, sum(__diff) AS n FROM updates WHERE __error IS NULL GROUP BY ALL HAVING n <> 0)
"""


def batch(first: int, rows: int, change: int) -> pa.RecordBatch:
    """Rows of the view; `change` is added to the price of one in a hundred."""
    ids = np.arange(first, first + rows)
    prices = (ids * 7919) % 10_000_000 + np.where(ids % 100 == 0, change, 0)
    columns = [
        pa.array(ids),
        pa.array([f"customer {i * 7919 % 1_000_003}" for i in ids]),
        pa.array(prices).cast(pa.decimal128(19, 0)).cast(COLUMNS.field("price").type),
        pa.array([f"kind {i % 25}" for i in ids]),
        pa.array(np.full(rows, AS_OF)),
        pa.array(np.ones(rows, np.int64)),
        pa.nulls(rows, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STAGED)


def stage_files(folder: Path, rows: int, change: int) -> None:
    """The output of a hydration: a file of each of its tasks."""
    folder.mkdir()
    per_file = -(-rows // FILES)
    for number in range(FILES):
        end = min((number + 1) * per_file, rows)
        with pa.OSFile(str(folder / f"{number}.arrow"), "wb") as sink, pa.ipc.new_file(sink, STAGED) as writer:
            for first in range(number * per_file, end, BATCH_ROWS):
                writer.write_batch(batch(first, min(BATCH_ROWS, end - first), change))


def write(shard: Shard, staged: Path, tasks: TaskWriter | None) -> None:
    """Write the output of a hydration, as the sink does."""
    files, ids = tuple(sorted(staged.iterdir())), count()
    delta = SinkDelta(GlobalId("view"), Time(AS_OF), Time(AS_OF + 1), STAGED, files, 1)  # type: ignore[arg-type]
    progress_of = SinkProgress(AS_OF, lambda: f"{staged.name}-{next(ids)}-{time.time_ns()}")
    upper = max(AS_OF + 1, shard.refresh().upper + 1)
    progress_of.stage(Staged(AS_OF, upper, delta))
    progress_of.observe(shard.refresh().upper, 0)
    append = progress_of.next()
    if append is None or not append_to(shard, append, tasks=tasks).won:
        raise WrongAnswer("nothing was appended")


def contents(location: str) -> list[Any]:
    """Sums over the contents, as another program reads them."""
    updates = DeltaTable(location).to_pyarrow_dataset()  # noqa: F841 - DuckDB reads it by its name
    return [str(value) for value in duckdb.sql(CONTENTS).fetchall()[0]]


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The most anonymous memory of this process during the block, in MiB beyond that before it."""
    before = _anonymous_mib()
    with sampled_peak(lambda: _anonymous_mib() - before, 0.005) as peak:
        yield peak


def _anonymous_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("RssAnon"))


def run_side(folder: Path, table: Path, by_tasks: bool, cores: int) -> dict[str, Any]:
    """One write in this process."""
    scratch = folder / f"scratch-{time.time_ns()}"
    scratch.mkdir()
    set_spill_folder(scratch)
    session = None
    if by_tasks:
        session = start_spark(f"local[{cores}]", "1g", scratch)
        session.range(0, cores, 1, cores).mapInArrow(lambda batches: batches, "id bigint").collect()
    shard = create_or_open(str(table), COLUMNS, shard_id="s")
    with peak_memory() as peak:
        cost, _ = measured(lambda: write(shard, folder / "staged", TaskWriter(lambda: session) if by_tasks else None))
    if session is not None:
        session.stop()
    seconds, cpu = round(cost.wall / 1000, 2), round(cost.cpu / 1000, 2)
    return {"seconds": seconds, "cpu_s": cpu, "driver_mib": round(peak[0]), "contents": contents(str(table))}


def measure(rows: int, cores: int) -> dict[str, Any]:
    """All four writes, each in a process of its own."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        progress(f"{rows} rows staged")
        stage_files(folder / "staged", rows, 0)
        stage_files(folder / "wrong", rows, 1)
        write(create_or_open(str(folder / "before"), COLUMNS, shard_id="s"), folder / "wrong", None)
        for what in ("first", "correction"):
            sides = {}
            for side in ("driver", "tasks"):
                progress(f"{what} by {side}")
                table = folder / f"{what}-{side}"
                if what == "correction":
                    shutil.copytree(folder / "before", table)
                sides[side] = _in_process(folder, table, side, cores)
            ours, theirs = sides["tasks"], sides["driver"]
            if ours.pop("contents") != theirs.pop("contents"):
                raise WrongAnswer(f"{what}: the tables differ")
            figures |= {f"{what}_{side}": found for side, found in sides.items()}
            figures[f"{what}_ratio"] = round(ours["seconds"] / theirs["seconds"], 2)
            figures[f"{what}_cpu_ratio"] = round(ours["cpu_s"] / theirs["cpu_s"], 2)
            figures[f"{what}_memory_ratio"] = round(ours["driver_mib"] / max(theirs["driver_mib"], 1), 3)
    return figures


def _in_process(folder: Path, table: Path, side: str, cores: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.parts.view_writes", "--cores", str(cores)]
    run = subprocess.run([*command, "--side", side, str(folder), str(table)], capture_output=True, text=True)
    if run.returncode:
        raise WrongAnswer(run.stderr[-2000:])
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measures, or is one side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--side", choices=("driver", "tasks"))
    parser.add_argument("paths", nargs="*", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        folder, table = given.paths
        print(json.dumps(run_side(folder, table, given.side == "tasks", given.cores)))
    else:
        print(json.dumps({"bench": "view_writes", "rows": given.rows, **measure(given.rows, given.cores), **context()}))


if __name__ == "__main__":
    main()
