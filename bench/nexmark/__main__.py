"""Nexmark's queries kept up to date: `python -m bench.nexmark [--json] [--quick]`.

    events_per_s_QUERY                 events of a step over its mean time; the steps follow each other
    freshness_ms_p50_QUERY, _p99_      from the commit of a step's events to that of the view
    spark_..., spark_streaming_ratio_QUERY   the same of Spark Structured Streaming, and events per second over its own
    spark_streaming_ratio              the least of the queries with state that it can express
    flink_..., flink_ratio_QUERY       the same of Flink SQL, whose events per second are of all events at once
    flink_ratio                        the least of the queries with state that it can express
    flink_cpu_ratio_QUERY, flink_cpu_ratio   the same of events per second of CPU time (events_per_cpu_s_...)

All rows at the end are compared with DuckDB's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bench.harness.answers import check
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.ratios import Figures, rounded
from bench.nexmark import view
from bench.nexmark.queries import QUERIES, STATELESS
from bench.nexmark.workload import Steps, tables_of
from bench.peers import flink_streaming, spark_streaming
from bench.peers.absent import PeerAbsent
from bench.steps.setting import Options, setting
from tidemark_replica.storage.nexmark.tables import TABLES

DEFAULT = "q00,q03,q04,q05,q07,q09,q13,q15,q17,q18,q20,q21"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "two queries, few events")
    parser.add_argument("--queries", default=DEFAULT, help="names, by commas (%(default)s)")
    parser.add_argument("--step-events", type=int, default=10_000, help="events of a step (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before them (%(default)s)")
    parser.add_argument("--peers", default="spark,flink", help="spark, flink, or nothing (%(default)s)")
    parser.add_argument("--peer-memory", default="2g", help="of a peer's JVM (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(queries="q17,q21", step_events=500, steps=2, warm_up=1)
    names = given.queries.split(",")
    if unknown := [name for name in names if name not in QUERIES]:
        parser.error(f"no such query: {', '.join(unknown)}")
    steps = Steps(given.warm_up + given.steps, given.step_events)
    circumstances = context() | {"load_before": load(), "step_events": given.step_events, "steps": given.steps}
    figures = Figures()
    with setting(Options()) as at:
        for name in names:
            costs = view.run(at.driver, at.folder, name, steps)
            figures |= _figures("", name, [cost.wall for cost in costs[given.warm_up :]], steps.events)
            cpu_s = sum(cost.cpu for cost in costs[given.warm_up :]) / 1e3
            figures[f"events_per_cpu_s_{name}"] = given.steps * steps.events / cpu_s
            progress(f"{name}: {figures[f'events_per_s_{name}']:.0f} events/s")
            if "spark" in given.peers.split(",") and name in spark_streaming.EXPRESSED:
                figures |= _spark(at.folder, name, steps, given.warm_up, given.peer_memory)
                figures |= _ratio(figures, name, "spark_streaming_ratio", "spark_")
            if "flink" in given.peers.split(",") and name not in flink_streaming.NOT_EXPRESSED:
                figures |= _flink(at.folder, name, steps, given.warm_up, given.peer_memory)
                figures |= _ratio(figures, name, "flink_ratio", "flink_")
                figures |= _ratio(figures, name, "flink_cpu_ratio", "flink_", "cpu_")
    for ratio in ("spark_streaming_ratio", "flink_ratio", "flink_cpu_ratio"):
        known = [figures.get(f"{ratio}_{name}") for name in names if name not in STATELESS]
        figures[ratio] = min((value for value in known if value is not None), default=None)
    report("nexmark", rounded(figures), circumstances | {"load_after": load()}, given.json)


def _spark(folder: Path, name: str, steps: Steps, warm_up: int, memory: str) -> Figures:
    home = folder / f"spark-{name}"
    folders = _files(home, name, steps)
    schemas = {table: ", ".join(f"{c.name} {c.type}" for c in TABLES[table].columns) for table in folders}
    times, rows = spark_streaming.run(name, QUERIES[name], folders, schemas, home, memory)
    check(f"Spark Structured Streaming, {name}, compared with DuckDB", rows, steps.answer(name))
    found = _figures("spark_", name, times[warm_up:], steps.events)
    progress(f"{name}: Spark {found[f'spark_events_per_s_{name}']:.0f} events/s")
    return found


def _flink(folder: Path, name: str, steps: Steps, warm_up: int, memory: str) -> Figures:
    home = folder / f"flink-{name}"
    columns = {table: ", ".join(map(flink_streaming.column, TABLES[table].columns)) for table in tables_of(name)}
    wanted = steps.answer(name)
    try:
        found = flink_streaming.run(
            name, QUERIES[name], _files(home, name, steps), columns, wanted.schema, home, memory, steps.count
        )
    except PeerAbsent as absent:
        progress(f"{name}: {absent}")
        return {}
    check(f"Flink, {name}, compared with DuckDB", found.rows, wanted)
    events, fresh = steps.count * steps.events, found.freshness_ms[warm_up:]
    figures: Figures = {
        f"flink_events_per_s_{name}": found.wall_s and events / found.wall_s,
        f"flink_events_per_cpu_s_{name}": found.cpu_s and events / found.cpu_s,
    }
    progress(f"{name}: Flink {figures[f'flink_events_per_s_{name}'] or math.nan:.0f} events/s")
    return figures | (_percentiles("flink_", name, fresh) if fresh else {})


def _files(home: Path, name: str, steps: Steps) -> dict[str, Path]:
    folders = {table: home / table for table in tables_of(name)}
    for table, folder in folders.items():
        steps.files(table, folder)
    return folders


def _figures(engine: str, name: str, walls: Sequence[float], events: int) -> Figures:
    """`walls`: milliseconds of each step."""
    rate: Figures = {f"{engine}events_per_s_{name}": events * len(walls) / sum(walls) * 1e3}
    return rate | _percentiles(engine, name, walls)


def _percentiles(engine: str, name: str, walls: Sequence[float]) -> Figures:
    ranked = sorted(walls)
    return {
        f"{engine}freshness_ms_p50_{name}": ranked[math.ceil(0.5 * len(walls)) - 1],
        f"{engine}freshness_ms_p99_{name}": ranked[math.ceil(0.99 * len(walls)) - 1],
    }


def _ratio(figures: Figures, name: str, ratio: str, peer: str, clock: str = "") -> Figures:
    """The ratio of events per second; none where the peer has no figure."""
    ours, theirs = (figures.get(f"{engine}events_per_{clock}s_{name}") for engine in ("", peer))
    assert ours is not None
    return {f"{ratio}_{name}": ours / theirs} if theirs is not None else {}


if __name__ == "__main__":
    main()
