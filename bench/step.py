"""What a step costs, by the size of the state: `python -m bench.step [--json]`.

A view that joins lineitem with part and sums up by brand and flag, over 1M and over 10M lines (and a tenth as many
parts), then deltas of 100 lines, half of them retractions. A step is timed from the commit of its input to that of its
index. Sizes and an empty Spark job take turns, so that whatever else the machine does hits all alike. Before any time
is reported, every answer of the view has been compared with DuckDB's, and the last one with Spark's.

    state_ratio            a step on the largest state over one on the smallest
    empty_job_ratio        a step (largest state) over an empty Spark DataFrame job of one task in the same session
    spark_recompute_ratio  Spark computing the query from Parquet over a step, largest state
    spark_cached_ratio     the same from tables that Spark has cached
    duckdb_ratio           DuckDB applying the delta in memory and computing the query over a step, largest state

Ratios are of medians by the clock; each also comes by CPU time (state_cpu_ratio, ...), which neighbours change less.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from bench.harness.answers import check
from bench.harness.case import Case, prepare
from bench.harness.clock import CPU_RESOLUTION_MS, Cost, cpu_mean, p50, p95, wall_p50
from bench.harness.context import context, last_line, load, progress
from bench.harness.deltas import SEED
from bench.harness.engine import StepTimes
from bench.harness.measure import Measured, Rounds, measure
from bench.harness.query import JOIN_AND_SUM, planner
from bench.peers.spark_batch import SparkCosts, recompute
from tidemark_replica.spark_session import SparkHolder, start_spark

WARM_UP = 5
PHASES = tuple(field.name for field in fields(StepTimes))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = _options(arguments)
    circumstances = context() | {"load_before": load(), "steps": options.steps, "seed": SEED}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        figures = _figures(Path(scratch), options)
    circumstances |= {"delta_rows": options.delta_rows, "warm_up": WARM_UP, "load_after": load()}
    if not options.json:
        for name, value in figures.items():
            print(f"{name:28} {value}")
    print(last_line("step", figures, circumstances))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--rows", default="1000000,10000000", help="lines of the fact table; smallest first")
    parser.add_argument("--steps", type=int, default=50, help="deltas that are timed")
    parser.add_argument("--delta-rows", type=int, default=100, help="rows of a delta, half of them retractions")
    parser.add_argument("--spark-memory", default="4g", help="heap of the Spark that computes the query anew")
    return parser.parse_args(arguments)


def _figures(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    cases = []
    for rows in map(int, options.rows.split(",")):
        progress(f"{rows} rows: data, and the answers by DuckDB")
        cases.append(prepare(rows, JOIN_AND_SUM, WARM_UP + options.steps, options.delta_rows))
    rounds = _run(folder, cases)
    progress("Spark as a batch")
    spark = _spark(folder, cases[-1], options.spark_memory)
    return figures_of(cases, rounds, spark)


def _run(folder: Path, cases: Sequence[Case]) -> Rounds:
    spark = SparkHolder(lambda: start_spark("local[2]", "1g", folder))
    try:
        with planner(folder) as plan:
            return measure(spark.get(), folder, plan, JOIN_AND_SUM, cases, WARM_UP)
    finally:
        spark.stop()


def _spark(folder: Path, case: Case, memory: str) -> SparkCosts:
    final = replace(case.tables, lineitem=case.deltas.write_final(folder / "final.parquet"))
    costs, answer = recompute(final, JOIN_AND_SUM, folder, memory)
    check(f"Spark over {case.label} rows, compared with DuckDB", answer, case.answers[-1])
    return costs


def figures_of(cases: Sequence[Case], rounds: Rounds, spark: SparkCosts) -> dict[str, float]:
    """All figures, by name; times in milliseconds."""
    figures: dict[str, float] = {}
    for case, size in zip(cases, rounds.sizes, strict=True):
        figures |= {f"{name}_{case.label}": value for name, value in _of_size(case, size).items()}
    others = {"empty_job": rounds.empty_job, "spark_recompute": spark.parquet, "spark_cached": spark.cached}
    for name, costs in others.items():
        figures |= {f"{name}_{statistic}": value for statistic, value in _statistics(costs).items()}
    step, small = rounds.sizes[-1].steps, rounds.sizes[0].steps
    figures |= _ratio("state", step, small) | _ratio("empty_job", step, rounds.empty_job)
    figures |= _ratio("spark_recompute", spark.parquet, step) | _ratio("spark_cached", spark.cached, step)
    figures |= _ratio("duckdb", cases[-1].duckdb, step)
    return {name: round(value, 4) for name, value in figures.items()}


def _ratio(name: str, costs: Sequence[Cost], over: Sequence[Cost]) -> dict[str, float]:
    """By the clock at the median, and by CPU time."""
    return {
        f"{name}_ratio": wall_p50(costs) / wall_p50(over),
        f"{name}_cpu_ratio": cpu_mean(costs) / max(cpu_mean(over), CPU_RESOLUTION_MS),
    }


def _of_size(case: Case, size: Measured) -> dict[str, float]:
    phases = {f"step_{name}_ms_p50": p50([getattr(s, name) for s in size.phases]) for name in PHASES}
    return {
        **{f"step_{statistic}": value for statistic, value in _statistics(size.steps).items()},
        **phases,
        "hydration_rows_per_s": size.rows_read / size.hydration.wall * 1e3,
        "hydration_s": size.hydration.wall / 1e3,
        "hydration_cpu_s": size.hydration.cpu / 1e3,
        "state_rows": size.state_rows,
        "state_mib": size.state_bytes / 2**20,
        **{f"duckdb_{statistic}": value for statistic, value in _statistics(case.duckdb).items()},
    }


def _statistics(costs: Sequence[Cost]) -> dict[str, float]:
    walls = [cost.wall for cost in costs]
    return {"ms_p50": p50(walls), "ms_p95": p95(walls), "ms_min": min(walls), "cpu_ms_mean": cpu_mean(costs)}


if __name__ == "__main__":
    main()
