"""Many small dataflows on one replica process: `python -m bench.views [--json]`.

    lag_p99_ticks      200 dataflows, each receiving 10 rows at every tick of a second: how many ticks each is behind
                       when the next tick comes, all dataflows and all ticks together
    idle_core          1,000 dataflows whose sources do not move: cores that the replica uses
    idle_ticking_core  the same while their sources tick every second, without rows

Tables, and the plans over them, are shared by dataflows (20 of each); at the end what every one of the busy ones holds
is compared with DuckDB's over the same rows. The replica is a process with its real
command loop, shard watch and sessions; the client only creates, schedules, compacts, and listens.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.answers import check
from bench.harness.clock import descendants_cpu_ms, p50, p95
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.engine import AS_OF, Source
from bench.harness.query import Planner, described, planned, planner
from bench.harness.ratios import Figures, rounded
from bench.harness.replica import Driven, driven, rss_mib
from bench.harness.workload.tpch import Table
from tidemark_persist import DIFF, TIME
from tidemark_protocol.plan.dataflow import DataflowDescription

SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})
VIEW = "SELECT k, count(*) AS n, sum(v) AS total FROM {{{table}}} WHERE v <> 7 GROUP BY k"
ROWS_BEFORE, KEYS, READABLE = 1000, 100, 5
HYDRATION_SECONDS = 3600.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _arguments(arguments)
    circumstances = context() | {"load_before": load(), **vars(given)}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch, planner(Path(scratch)) as plan:
        figures = _busy(Path(scratch), plan, given) if given.dataflows else Figures()
        figures |= _idle(Path(scratch), plan, given) if given.idle else Figures()
    figures = rounded(figures)
    report("views", figures, circumstances | {"load_after": load()}, given.json)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = bench_parser(__doc__, "few dataflows, some seconds")
    parser.add_argument("--dataflows", type=int, default=200, help="that receive rows; 0: leave out (%(default)s)")
    parser.add_argument("--idle", type=int, default=1000, help="that do not; 0: leave out (%(default)s)")
    parser.add_argument("--tables", type=int, default=10, help="that they share (%(default)s)")
    parser.add_argument("--rows", type=int, default=10, help="updates of a table at a tick (%(default)s)")
    parser.add_argument("--seconds", type=float, default=300.0, help="of ticks (%(default)s)")
    parser.add_argument("--idle-seconds", type=float, default=60.0, help="of idleness, twice (%(default)s)")
    parser.add_argument("--tick", type=float, default=1.0, help="seconds (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(dataflows=4, idle=6, tables=2, seconds=5.0, idle_seconds=2.0)
    return given


class Tables:
    """Shards that tick together."""

    def __init__(self, folder: Path, count: int) -> None:
        self._rng, self.now = np.random.default_rng(7), AS_OF
        file = folder / "rows.parquet"
        pq.write_table(self._rows(ROWS_BEFORE), file)
        self.sources = [Source(folder, f"t{i}", Table(file, SCHEMA)) for i in range(count)]
        self._held = [[pq.read_table(file)] for _ in self.sources]

    def tick(self, rows: int, read_from: int) -> None:
        """Append the next time to all tables. No view reads before `read_from`."""
        self.now += 1
        for source, held in zip(self.sources, self._held, strict=True):
            updates = self._updates(rows) if rows else None
            held += [] if updates is None else [updates.select(SCHEMA.names)]
            source.append(updates)
            source.forget(max(min(self.now - READABLE, read_from - 1), AS_OF))

    def views(self, plan: Planner, count: int) -> list[DataflowDescription]:
        """The dataflows, spread over the tables."""
        shards = {f"t{i}": (source.location, source.schema) for i, source in enumerate(self.sources)}
        plans = [planned(plan, VIEW.format(table=t), {t: shard}) for t, shard in shards.items()]
        return [described(plans[number % len(plans)], self.now, f"view{number}") for number in range(count)]

    def compare(self, replica: Driven, dataflows: Sequence[DataflowDescription]) -> None:
        """Raises WrongAnswer where one of these `views` is not what DuckDB makes of its table's rows."""
        answers = [_answer(pa.concat_tables(held)) for held in self._held]
        for number, dataflow in enumerate(dataflows):
            rows = replica.rows(dataflow, self.now)
            check(f"view {number}, compared with DuckDB", rows, answers[number % len(answers)])

    def _rows(self, count: int) -> pa.Table:
        columns = [pa.array(self._rng.integers(0, high, count)) for high in (KEYS, 1 << 40)]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def _updates(self, count: int) -> pa.Table:
        times, ones = (pa.array(np.full(count, value)) for value in (self.now, 1))
        return self._rows(count).append_column(TIME, times).append_column(DIFF, ones)


def _answer(rows: pa.Table) -> pa.Table:
    with duckdb.connect() as database:
        return database.register("now", rows).sql(VIEW.format(table="now").format(now="now")).to_arrow_table()


def _busy(folder: Path, plan: Planner, given: argparse.Namespace) -> Figures:
    with _installed(folder / "busy", plan, given.tables, given.dataflows) as (replica, tables, dataflows, hydration):
        exports = [id for dataflow in dataflows for id in dataflow.export_ids]
        before, began, ticks = replica.steps(), time.monotonic(), round(given.seconds / given.tick)
        spent, lags, late = _cpu_seconds(), list[int](), 0
        for number in range(ticks):
            tables.tick(given.rows, min(replica.uppers(exports)))
            late += not _until(began + (number + 1) * given.tick)
            lags += [tables.now + 1 - upper for upper in replica.uppers(exports)]
            replica.compact(exports, max(tables.now - READABLE, AS_OF))
            _cpu_seconds()
        elapsed = time.monotonic() - began
        cpu = (_cpu_seconds() - spent) / elapsed
        replica.wait(exports, tables.now + 1)
        steps = replica.steps()
        tables.compare(replica, dataflows)
        return {
            "lag_p99_ticks": float(np.percentile(lags, 99)),
            "lag_p50_ticks": p50(lags),
            "lag_p95_ticks": p95(lags),
            "lag_max_ticks": max(lags),
            "late_ticks": late,
            "busy_core": cpu,
            "steps_per_tick": (steps.count - before.count) / ticks,
            "hydration_s": hydration,
            "rss_mib": rss_mib(replica.processes()),
        }


def _idle(folder: Path, plan: Planner, given: argparse.Namespace) -> Figures:
    with _installed(folder / "idle", plan, given.tables, given.idle) as (replica, tables, dataflows, hydration):
        exports = [id for dataflow in dataflows for id in dataflow.export_ids]
        _until(time.monotonic() + given.idle_seconds / 2)  # what a hydration leaves to be merged and compiled
        quiet = _cores(lambda: None, given.idle_seconds, given.tick)
        ticking = _cores(lambda: tables.tick(0, min(replica.uppers(exports))), given.idle_seconds, given.tick)
        replica.wait(exports, tables.now + 1)
        return {
            "idle_core": quiet,
            "idle_ticking_core": ticking,
            "idle_hydration_s": hydration,
            "idle_rss_mib": rss_mib(replica.processes()),
        }


def _cores(tick: Callable[[], None], seconds: float, pause: float) -> float:
    """CPU over time, of the replica with all that it started."""
    began, spent = time.monotonic(), _cpu_seconds()
    for number in range(round(seconds / pause)):
        tick()
        _until(began + (number + 1) * pause)
        _cpu_seconds()
    return (_cpu_seconds() - spent) / (time.monotonic() - began)


@contextmanager
def _installed(
    folder: Path, plan: Planner, tables: int, views: int
) -> Iterator[tuple[Driven, Tables, list[DataflowDescription], float]]:
    """A replica that has hydrated the views, its tables, the views, and how many seconds that took."""
    folder.mkdir()
    made = Tables(folder, tables)
    dataflows = made.views(plan, views)
    with driven(folder) as replica:
        began = time.perf_counter()
        exports = replica.install(dataflows)
        hydration = replica.wait(exports, made.now + 1, HYDRATION_SECONDS) - began
        progress(f"{views} views are hydrated after {hydration:.0f} s")
        yield replica, made, dataflows, hydration


def _cpu_seconds() -> float:
    """The processor time of all that this process started. A process that ended counts as of the last look, so look now
    and then. The planner beside the replica has nothing to do."""
    return descendants_cpu_ms() / 1e3


def _until(moment: float) -> bool:
    """Waits for the clock; False if it was past that already."""
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)
    return left > 0


if __name__ == "__main__":
    main()
