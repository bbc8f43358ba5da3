"""Nexmark's queries kept up to date: `python -m bench.nexmark [--json] [--quick]`.

    events_per_s_QUERY                 events of a step over its mean time; the steps follow each other
    freshness_ms_p50_QUERY, _p99_      from the commit of a step's events to that of the view
    spark_..., spark_streaming_ratio_QUERY   the same of Spark Structured Streaming, and events per second over its own
    spark_streaming_ratio              the least of the queries with state that it can express

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
from bench.peers import spark_streaming
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
    parser.add_argument("--peers", default="spark", help="spark, or nothing (%(default)s)")
    parser.add_argument("--spark-memory", default="2g", help="of the peer's driver (%(default)s)")
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
            progress(f"{name}: {figures[f'events_per_s_{name}']:.0f} events/s")
            if "spark" in given.peers.split(",") and name in spark_streaming.EXPRESSED:
                figures |= _spark(at.folder, name, steps, given.warm_up, given.spark_memory)
                figures |= _ratio(figures, name)
    known = [figures.get(f"spark_streaming_ratio_{name}") for name in names if name not in STATELESS]
    figures["spark_streaming_ratio"] = min((value for value in known if value is not None), default=None)
    report("nexmark", rounded(figures), circumstances | {"load_after": load()}, given.json)


def _spark(folder: Path, name: str, steps: Steps, warm_up: int, memory: str) -> Figures:
    home = folder / f"spark-{name}"
    folders = {table: home / table for table in tables_of(name)}
    for table, of in folders.items():
        steps.files(table, of)
    schemas = {table: ", ".join(f"{c.name} {c.type}" for c in TABLES[table].columns) for table in folders}
    times, rows = spark_streaming.run(name, QUERIES[name], folders, schemas, home, memory)
    check(f"Spark Structured Streaming, {name}, compared with DuckDB", rows, steps.answer(name))
    found = _figures("spark_", name, times[warm_up:], steps.events)
    progress(f"{name}: Spark {found[f'spark_events_per_s_{name}']:.0f} events/s")
    return found


def _figures(engine: str, name: str, walls: Sequence[float], events: int) -> Figures:
    """`walls`: milliseconds of each step."""
    ranked = sorted(walls)
    return {
        f"{engine}events_per_s_{name}": events * len(walls) / sum(walls) * 1e3,
        f"{engine}freshness_ms_p50_{name}": ranked[math.ceil(0.5 * len(walls)) - 1],
        f"{engine}freshness_ms_p99_{name}": ranked[math.ceil(0.99 * len(walls)) - 1],
    }


def _ratio(figures: Figures, name: str) -> Figures:
    ours, theirs = figures[f"events_per_s_{name}"], figures[f"spark_events_per_s_{name}"]
    assert ours is not None
    assert theirs is not None
    return {f"spark_streaming_ratio_{name}": ours / theirs}


if __name__ == "__main__":
    main()
