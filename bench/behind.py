"""A replica that is behind catches up: `python -m bench.behind [--json] [--rows 0,30000,100000]`.

    steady state    ticks of 1,000 updates come one after the other; the memory of all processes is sampled
    behind          3,600 such ticks are there at once; the replica catches up
        peak_memory_ratio   the most memory while it catches up over the most in the steady state
        throughput_ratio    updates a second in steps of bounded rows over those in one step of all

The view joins lineitem with part and sums up. Each bound (`--rows`; 0: none) has a replica process of its own; the
ratios are those of the last one. Its frontier never goes back, and its rows are at the end those of DuckDB.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.harness.answers import check
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.engine import AS_OF, Source
from bench.harness.query import Planner, describe, planner
from bench.harness.ratios import Figures, rounded
from bench.harness.replica import Driven, driven, rss_mib
from bench.harness.workload.deltas import Delta, deltas
from bench.harness.workload.queries import JOIN_AND_SUM
from bench.harness.workload.tpch import tables
from bench.peers.duckdb_apply import DuckDb
from tests.soak.processes import of_system
from tidemark_protocol.ids import GlobalId
from tidemark_replica.options import STEP_ROWS

SAMPLE_SECONDS = 0.1
TICKS_OF_A_FILE = 60
CATCH_UP_SECONDS = 1800.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "a small table, one minute behind")
    parser.add_argument("--lines", type=int, default=2_000_000, help="rows of lineitem (%(default)s)")
    parser.add_argument("--ticks", type=int, default=3600, help="ticks that the replica is behind (%(default)s)")
    parser.add_argument("--steady", type=int, default=60, help="ticks of the steady state (%(default)s)")
    parser.add_argument("--updates", type=int, default=1000, help="updates of a tick (%(default)s)")
    parser.add_argument("--rows", default=f"0,{STEP_ROWS}", help="bounds of a step; 0: none (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(lines=60_000, ticks=60, steady=5, updates=100, rows="0,1000")
    circumstances = context() | {"load_before": load(), **vars(given)}
    bounds = [int(rows) for rows in given.rows.split(",")]
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch, planner(Path(scratch)) as plan:
        history = _History.of(given.lines, [given.updates] * (given.steady + given.ticks), given.steady)
        figures, measured = Figures(), list[_Measured]()
        for rows in bounds:
            with tempfile.TemporaryDirectory(dir=scratch) as home:
                progress(f"at most {rows} updates a step" if rows else "without a bound")
                measured.append(_of_bound(Path(home), plan, history, rows))
                found = measured[-1].figures()
                progress(", ".join(f"{name} {value:.4g}" for name, value in found.items() if value is not None))
                figures |= {f"{name}_{rows}": value for name, value in found.items()}
    unbounded = measured[bounds.index(0)].updates_per_s if 0 in bounds else None
    last = measured[-1]
    ratios: Figures = {
        "peak_memory_ratio": last.peak_mib / last.steady_mib,
        "throughput_ratio": None if unbounded is None else last.updates_per_s / unbounded,
    }
    report("behind", rounded(ratios | figures), circumstances | {"load_after": load()}, given.json)


@dataclass(frozen=True)
class _History:
    """All updates: the steady state's tables one by one, and the backlog in files of TICKS_OF_A_FILE ticks."""

    lines: int
    steady: list[pa.Table]
    backlog: list[pa.Table]
    answer: pa.Table

    @staticmethod
    def of(lines: int, sizes: Sequence[int], steady: int) -> _History:
        data = {name: tables(lines)[name] for name in JOIN_AND_SUM.tables}
        changes = deltas(data["lineitem"], sizes)
        database = DuckDb(data, [JOIN_AND_SUM])
        retracted = pa.concat_tables([change.retracted for change in changes]).combine_chunks()
        database.apply(Delta(retracted, pa.concat_tables([change.inserted for change in changes]).combine_chunks()))
        progress(f"{len(changes)} ticks")
        updates = [change.updates(at) for at, change in enumerate(changes, AS_OF + 1)]
        return _History(lines, updates[:steady], updates[steady:], database.answer(JOIN_AND_SUM))


@dataclass(frozen=True)
class _Measured:
    """The measures of one bound: the greatest memory in MiB, before and while it caught up, and the frontiers on the
    way."""

    steady_mib: float
    peak_mib: float
    seconds: float
    updates_per_s: float
    frontiers: int
    steps: float

    def figures(self) -> Figures:
        return dict(vars(self))


def _of_bound(folder: Path, plan: Planner, history: _History, rows: int) -> _Measured:
    data = {name: tables(history.lines)[name] for name in JOIN_AND_SUM.tables}
    sources = {name: Source(folder, name, table) for name, table in data.items()}
    shards = {name: (source.location, source.schema) for name, source in sources.items()}
    dataflow = describe(plan, JOIN_AND_SUM.sql, shards, AS_OF)
    (folder / "replica").mkdir()
    steady = len(history.steady)
    with driven(folder / "replica", "--driver-memory", "1g", "--step-rows", str(rows)) as replica:
        exports = replica.install([dataflow])
        replica.wait(exports, AS_OF + 1, CATCH_UP_SECONDS)
        with _sampled(replica, exports) as before:
            for at, updates in enumerate(history.steady, AS_OF + 1):
                for name, source in sources.items():
                    source.append(updates if name == "lineitem" else None)
                replica.wait(exports, at + 1)
        steps = replica.steps().count
        with _sampled(replica, exports) as during:
            # the small table first: the backlog of the other then comes with one commit
            upper = AS_OF + 1 + steady + len(history.backlog)
            for name, source in sorted(sources.items(), key=lambda each: each[0] == "lineitem"):
                source.append_all(history.backlog if name == "lineitem" else [], upper, TICKS_OF_A_FILE)
            began = time.perf_counter()
            seconds = replica.wait(exports, upper, CATCH_UP_SECONDS) - began
        taken = replica.steps().count - steps
        answer = replica.rows(dataflow, upper - 1)
    check("the view that has caught up, compared with DuckDB", answer, history.answer)
    in_all = sum(updates.num_rows for updates in history.backlog)
    frontiers = [at for at in during.uppers if at > AS_OF + 1 + steady]
    if frontiers != sorted(frontiers):
        raise ValueError(f"the frontier went back: {frontiers}")
    return _Measured(max(before.mib), max(during.mib), seconds, in_all / seconds, len(set(frontiers)), taken)


@dataclass
class _Samples:
    """Resident memory of all processes in MiB, and the frontiers at the same moments."""

    mib: list[float]
    uppers: list[int]


@contextmanager
def _sampled(replica: Driven, exports: Sequence[GlobalId]) -> Iterator[_Samples]:
    found, ended = _Samples([], []), threading.Event()

    def sample() -> None:
        while True:
            found.mib.append(rss_mib(of_system(replica.home)))
            found.uppers.append(min(replica.uppers(exports)))
            if ended.wait(SAMPLE_SECONDS):
                return

    thread = threading.Thread(target=sample, name="samples of memory")
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()
