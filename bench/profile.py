"""The parts of a step's time: `python -m bench.profile [--json] [--flame FILE]`.

Views over TPC-H (an aggregation, a join of three tables with aggregation, one of six with aggregation and top-k), each
stepped in three shapes: as one Spark task and in the worker beside the driver, with deltas of 100 lines, and as several
Spark tasks with exchanges, with large ones; half of the lines are retractions. The parts of a step are timed in the
driver and in the Python processes; the parts add up to the step. Timing costs about a millisecond itself: the ratios of
`bench.step` are measured without.

    NAME_empty_job_ratio    a step over an empty Spark DataFrame job of one task in the same run, medians
    NAME_cpu_ratio          the same by CPU time of all processes

NAME is a query's, of steps as one Spark task; QUERY_driver and QUERY_tasks are of the others.

`--flame FILE` samples all stacks besides, and writes them collapsed for speedscope.app or flamegraph.pl: slower steps.
With `--shapes` it shows one shape alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from bench.harness.clock import cpu_mean, p50, p95, wall_p50
from bench.harness.context import bench_parser, context, last_line, load, progress
from bench.harness.query import planner
from bench.profiling import spans, stacks
from bench.profiling.driving import Profiled, Profiler
from bench.profiling.plans import QUERIES
from bench.profiling.shapes import SHAPES, TASK, TASKS, Steps
from tidemark_replica.spark.session import SparkHolder, start_spark

WARM_UP, LARGE_WARM_UP = 10, 3


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = _options(arguments)
    circumstances = context() | {"load_before": load(), "scale_factor": options.scale_factor, "steps": options.steps}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        found = _run(Path(scratch), options)
        if options.flame:
            lines = [f"{stack} {count}\n" for stack, count in stacks.collected(Path(scratch) / "profile").items()]
            options.flame.write_text("".join(lines))
    figures: dict[str, float] = {}
    for (query, shape), profiled in found.items():
        name = query if shape == TASK else f"{query}_{shape}"
        figures |= {f"{name}_{key}": round(value, 3) for key, value in _figures(profiled).items()}
        if not options.json:
            print(_table(f"{query}, {SHAPES[shape]}", profiled))
    settings = {name: vars(options)[name] for name in ("delta_rows", "large_rows", "large_steps")}
    print(last_line("profile", figures, circumstances | settings | {"load_after": load()}))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = bench_parser(__doc__, "a small table, one query, few steps")
    parser.add_argument("--queries", default=",".join(QUERIES), help="which ones, by name")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="where steps run (%(default)s)")
    parser.add_argument("--scale-factor", default="0.1", help="TPC-H's")
    parser.add_argument("--steps", type=int, default=50, help="deltas that are timed")
    parser.add_argument("--delta-rows", type=int, default=100, help="lines of a delta, half of them retractions")
    parser.add_argument("--large-steps", type=int, default=10, help="deltas that are timed, in several tasks")
    parser.add_argument("--large-rows", type=int, default=20_000, help="lines of such a delta")
    parser.add_argument("--flame", type=Path, help="write collapsed stacks there")
    given = parser.parse_args(arguments)
    for name, known in (("queries", QUERIES), ("shapes", SHAPES)):
        if unknown := set(vars(given)[name].split(",")) - set(known):
            parser.error(f"--{name}: there is no {', '.join(sorted(unknown))}, but {', '.join(known)}")
    if given.quick:
        vars(given).update(
            queries="aggregation", scale_factor="0.01", steps=3, delta_rows=10, large_steps=2, large_rows=400
        )
    return given


def _run(folder: Path, options: argparse.Namespace) -> dict[tuple[str, str], Profiled]:
    """By query and shape."""
    log = folder / "profile"
    log.mkdir()
    os.environ[spans.FOLDER] = str(log)  # the workers have the environment of the process that starts them
    if options.flame:
        (log / "sample").touch()
        stacks.sample_this_process(log)
    small = Steps(options.steps, options.delta_rows, WARM_UP)
    large = Steps(options.large_steps, options.large_rows, LARGE_WARM_UP)
    spark = SparkHolder(lambda: start_spark("local[2]", "1g", folder))
    found = {}
    try:
        with planner(folder) as plan:
            profiler = Profiler(spark.get(), plan, folder, options.scale_factor)
            for query, shape in product(options.queries.split(","), options.shapes.split(",")):
                steps = large if shape == TASKS else small
                progress(f"{query}, {SHAPES[shape]}: hydration, then {steps.warm_up} + {steps.timed} steps")
                found[query, shape] = profiler.profile(query, shape, steps)
    finally:
        spark.stop()
    return found


def _figures(profiled: Profiled) -> dict[str, float]:
    walls = [cost.wall for cost in profiled.costs]
    labels = sorted({label for parts in profiled.parts for label in parts})
    return {
        "empty_job_ratio": wall_p50(profiled.costs) / wall_p50(profiled.empty),
        "cpu_ratio": cpu_mean(profiled.costs) / cpu_mean(profiled.empty),
        "step_ms_p50": p50(walls),
        "step_ms_p95": p95(walls),
        "step_ms_min": min(walls),
        "step_cpu_ms": cpu_mean(profiled.costs),
        "empty_job_ms_p50": wall_p50(profiled.empty),
        "empty_job_ms_min": min(cost.wall for cost in profiled.empty),
        "empty_job_cpu_ms": cpu_mean(profiled.empty),
        "jobs": profiled.jobs,
        "tasks": profiled.tasks,
        **{f"part {label}": p50([parts.get(label, 0.0) for parts in profiled.parts]) for label in labels},
    }


def _table(name: str, profiled: Profiled) -> str:
    figures = _figures(profiled)
    parts = {key.removeprefix("part "): value for key, value in figures.items() if key.startswith("part ")}
    lines = [f"{name}: {len(profiled.costs)} steps of {profiled.jobs} Spark job(s), medians in ms"]
    lines += [f"  {label:56} {parts[label]:8.2f}" for label in sorted(parts, key=lambda label: -parts[label])]
    lines += [f"  {key:56} {value:8.2f}" for key, value in figures.items() if not key.startswith("part ")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
