"""Does the driver's memory follow the state? `python -m bench.memory [--json] [--rows 1000000,10000000]`.

    driver_growth   the driver (replica process and JVM) with the largest state over the one with the smallest:
                    the greater of the ratio of resident memory and that of the JVM's heap after a collection

Each size has a replica process of its own, which hydrates the view that joins lineitem with part and takes steps.
Then the view is what DuckDB computes from the same rows.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.harness.answers import check
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.engine import AS_OF, Source
from bench.harness.query import Planner, describe, planner
from bench.harness.ratios import Figures, rounded
from bench.harness.replica import Driven, driven, rss_mib
from bench.harness.workload.deltas import deltas
from bench.harness.workload.queries import JOIN_AND_SUM
from bench.harness.workload.tpch import label, tables
from bench.peers.duckdb_apply import DuckDb
from tests.soak.folders import size_of

HYDRATION_SECONDS = 3600.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "small tables")
    parser.add_argument(
        "--rows", default="1000000,10000000,60000000", help="lines of the states; smallest first (%(default)s)"
    )
    parser.add_argument("--steps", type=int, default=20, help="steps before memory is read (%(default)s)")
    parser.add_argument("--delta-rows", type=int, default=100, help="updates of a step (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(rows="6000,12000", steps=2)
    circumstances = context() | {"load_before": load(), **vars(given)}
    figures, asked = Figures(), [int(rows) for rows in given.rows.split(",")]
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch, planner(Path(scratch)) as plan:
        for rows in asked:
            with tempfile.TemporaryDirectory(dir=scratch) as home:
                figures |= _of_size(Path(home), plan, rows, given.steps, given.delta_rows)
    figures = rounded(_growth(figures, label(asked[0]), label(asked[-1])) | figures)
    report("memory", figures, circumstances | {"load_after": load()}, given.json)


def _of_size(folder: Path, plan: Planner, rows: int, steps: int, delta_rows: int) -> Figures:
    progress(f"{rows} lines")
    data = {name: tables(rows)[name] for name in JOIN_AND_SUM.tables}
    sources = {name: Source(folder, name, table) for name, table in data.items()}
    shards = {name: (source.location, source.schema) for name, source in sources.items()}
    dataflow = describe(plan, JOIN_AND_SUM.sql, shards, AS_OF)
    (folder / "replica").mkdir()
    with driven(folder / "replica", "--driver-memory", "1g") as replica:
        exports = replica.install([dataflow])
        replica.wait(exports, AS_OF + 1, HYDRATION_SECONDS)
        changes = deltas(data["lineitem"], [delta_rows] * steps)
        for at, delta in enumerate(changes, AS_OF + 1):
            for name, source in sources.items():
                source.append(delta.updates(at) if name == "lineitem" else None)
            replica.wait(exports, at + 1)
        found = {f"{name}_{label(rows)}": value for name, value in _measured(replica).items()}
        answer = replica.rows(dataflow, AS_OF + steps)
    database = DuckDb(data, [JOIN_AND_SUM])
    for delta in changes:
        database.apply(delta)
    check(f"the view of {rows} lines, compared with DuckDB", answer, database.answer(JOIN_AND_SUM))
    return found


def _measured(replica: Driven) -> Figures:
    processes = replica.processes()
    (jvm,) = (process for process in processes if process.role == "jvm")
    driver = {"replica", "jvm"}
    return {
        "driver_heap_mib": _heap_mib(jvm.pid),
        "driver_rss_mib": rss_mib([p for p in processes if p.role in driver]),
        "replica_rss_mib": rss_mib([p for p in processes if p.role == "replica"]),
        "workers_rss_mib": rss_mib([p for p in processes if p.role not in driver]),
        "scratch_mib": size_of(replica.home / "scratch").bytes / 2**20,
    }


def _heap_mib(jvm: int) -> float | None:
    """The used heap after a full collection; None without the JDK's tools."""
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        return None
    subprocess.run([jcmd, str(jvm), "GC.run"], check=True, capture_output=True)
    output = subprocess.run([jcmd, str(jvm), "GC.heap_info"], check=True, capture_output=True, text=True).stdout
    generations = re.findall(r"(?:generation|heap)\s+total \d+K, used (\d+)K", output)
    return sum(map(int, generations)) / 2**10


def _growth(figures: Figures, smallest: str, largest: str) -> Figures:
    found = Figures()
    for name in ("driver_rss", "driver_heap"):
        small, large = figures[f"{name}_mib_{smallest}"], figures[f"{name}_mib_{largest}"]
        found[f"{name}_growth"] = None if small is None or large is None else large / small
    known = [ratio for ratio in found.values() if ratio is not None]
    return {"driver_growth": max(known), **found}


if __name__ == "__main__":
    main()
