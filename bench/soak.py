"""A prepared plan, stepped for long by a real replica process: `python -m bench.soak [--json] [--steps 20000]`.

    rss_growth    resident memory of driver, JVM and workers: the last tenth of the run over the tenth after warming up
    p50_drift     the median step of the last 1,000 over that of the first 1,000 after warming up
    files_growth  files on disk, of shards and of scratch: the most of the second half over the most of the first

The view joins lineitem with part and sums up. Every second delta undoes the one before, so the state keeps its size
while merges, compaction and the shards' maintenance go on. A step's time is the replica's own count, without the wait
for the next look at the shard. Shards keep old files for 20 s instead of a quarter of an hour, a small part of a run.
At the end the view is compared with DuckDB.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bench.harness.answers import check
from bench.harness.clock import p50
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.engine import AS_OF, Source
from bench.harness.query import describe, planner
from bench.harness.ratios import Figures, rounded
from bench.harness.replica import Driven, driven, rss_mib
from bench.harness.workload.deltas import Delta, deltas
from bench.harness.workload.queries import JOIN_AND_SUM
from bench.harness.workload.tpch import Tables, tables
from bench.peers.duckdb_apply import DuckDb
from tests.soak.folders import size_of
from tidemark_persist import MaintenancePolicy
from tidemark_protocol.ids import GlobalId

POLICY = MaintenancePolicy(vacuum_grace_seconds=20.0, orphan_age_seconds=20.0, log_retention_seconds=20)
DIFFERENT, READABLE, SAMPLES = 100, 20, 200
COMPARED_STEPS = 1000
PARTS = 20
"""The interval of progress lines."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "a small table, few steps")
    parser.add_argument("--steps", type=int, default=3000, help="in all; the real run has 20000 (%(default)s)")
    parser.add_argument("--lines", type=int, default=200_000, help="rows of lineitem (%(default)s)")
    parser.add_argument("--rows", type=int, default=100, help="updates of a step (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(steps=40, lines=6000, rows=10)
    circumstances = context() | {"load_before": load(), **vars(given)}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        figures = rounded(_soak(Path(scratch), given.lines, given.steps, given.rows).figures())
    report("soak", figures, circumstances | {"load_after": load()}, given.json)


@dataclass
class Soak:
    """The samples: seconds of every step, and at `SAMPLES` points memory by kind of process, and files."""

    steps: list[float] = field(default_factory=list)
    rss: list[dict[str, float]] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def figures(self) -> Figures:
        """The first tenth warms up."""
        warm = len(self.steps) // 10
        compared = min(COMPARED_STEPS, (len(self.steps) - warm) // 2)
        first, last = self.steps[warm : warm + compared], self.steps[-compared:]
        half = len(self.files) // 2
        found: Figures = {
            "rss_growth": self._growth("all"),
            "p50_drift": p50(last) / p50(first),
            "files_growth": max(self.files[half:]) / max(self.files[len(self.files) // 10 : half]),
            "step_ms_p50_first": p50(first) * 1e3,
            "step_ms_p50_last": p50(last) * 1e3,
            "files_max": max(self.files),
        }
        for kind in self.rss[-1]:
            found[f"rss_mib_{kind}"], found[f"rss_growth_{kind}"] = self.rss[-1][kind], self._growth(kind)
        return found

    def _growth(self, kind: str) -> float:
        values = [sample.get(kind, 0.0) for sample in self.rss]
        tenth = max(len(values) // 10, 1)
        return p50(values[-tenth:]) / p50(values[tenth : 2 * tenth])


def _soak(folder: Path, lines: int, steps: int, rows: int) -> Soak:
    data = {name: tables(lines)[name] for name in JOIN_AND_SUM.tables}
    sources = {name: Source(folder, name, table, POLICY) for name, table in data.items()}
    changes = _back_and_forth(deltas(data["lineitem"], [rows] * DIFFERENT))
    shards = {name: (source.location, source.schema) for name, source in sources.items()}
    with planner(folder) as plan:
        dataflow = describe(plan, JOIN_AND_SUM.sql, shards, AS_OF)
    (folder / "replica").mkdir()
    with driven(folder / "replica", "--driver-memory", "1g") as replica:
        exports = replica.install([dataflow])
        replica.wait(exports, AS_OF + 1)
        progress("hydrated")
        seen = Soak()
        for number in range(steps):
            _step(replica, exports, sources, changes[number % len(changes)], AS_OF + 1 + number, seen)
            if number % max(steps // SAMPLES, 1) == 0:
                _sample(replica, folder, seen)
            if number % max(steps // PARTS, 1) == 0:
                progress(f"{number} of {steps} steps")
        rows = replica.rows(dataflow, AS_OF + steps)
    check(f"the view after {steps} steps, compared with DuckDB", rows, _answer(data, changes[: steps % len(changes)]))
    return seen


def _answer(data: Tables, changes: Sequence[Delta]) -> pa.Table:
    """Nothing is left of all rounds but the last: each undid what it did."""
    database = DuckDb(data, [JOIN_AND_SUM])
    for delta in changes:
        database.apply(delta)
    return database.answer(JOIN_AND_SUM)


def _step(
    replica: Driven, exports: list[GlobalId], sources: dict[str, Source], delta: Delta, at: int, seen: Soak
) -> None:
    before = replica.steps()
    for name, source in sources.items():
        source.append(delta.updates(at) if name == "lineitem" else None)
        source.forget(max(at - READABLE, AS_OF))
    replica.wait(exports, at + 1)
    replica.compact(exports, max(at - READABLE, AS_OF))
    after = replica.steps()
    seen.steps.append((after.seconds - before.seconds) / max(after.count - before.count, 1))


def _sample(replica: Driven, folder: Path, seen: Soak) -> None:
    processes = replica.processes()
    kinds = {process.role for process in processes}
    by_kind = {kind: rss_mib([p for p in processes if p.role == kind]) for kind in kinds}
    seen.rss.append({"all": rss_mib(processes), **by_kind})
    seen.files.append(size_of(folder).files)


def _back_and_forth(changes: Sequence[Delta]) -> list[Delta]:
    """Each, and what undoes it."""
    return [step for delta in changes for step in (delta, Delta(delta.inserted, delta.retracted))]


if __name__ == "__main__":
    main()
