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
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.harness.answers import check
from bench.harness.case import Case, prepare
from bench.harness.clock import p50, p95
from bench.harness.context import context, last_line, load, progress
from bench.harness.deltas import SEED
from bench.harness.measure import Measured, Rounds, measure
from bench.harness.query import JOIN_AND_SUM, planner
from bench.peers.spark_batch import SparkTimes, recompute
from tidemark_replica.spark_session import SparkHolder, start_spark

WARM_UP = 5


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


def _spark(folder: Path, case: Case, memory: str) -> SparkTimes:
    final = replace(case.tables, lineitem=case.deltas.write_final(folder / "final.parquet"))
    times, answer = recompute(final, JOIN_AND_SUM, folder, memory)
    check(f"Spark over {case.label} rows, compared with DuckDB", answer, case.answers[-1])
    return times


def figures_of(cases: Sequence[Case], rounds: Rounds, spark: SparkTimes) -> dict[str, float]:
    """All figures, by name; times in milliseconds."""
    figures: dict[str, float] = {}
    for case, size in zip(cases, rounds.sizes, strict=True):
        figures |= {f"{name}_{case.label}": value for name, value in _of_size(case, size).items()}
    smallest, largest = (p50([s.all for s in size.steps]) for size in (rounds.sizes[0], rounds.sizes[-1]))
    empty, duckdb = p50(rounds.empty_job), p50(cases[-1].duckdb_ms)
    figures |= {"empty_job_ms_p50": empty, "spark_recompute_ms_p50": spark.parquet, "spark_cached_ms_p50": spark.cached}
    figures |= {
        "state_ratio": largest / smallest,
        "empty_job_ratio": largest / empty,
        "spark_recompute_ratio": spark.parquet / largest,
        "spark_cached_ratio": spark.cached / largest,
        "duckdb_ratio": duckdb / largest,
    }
    return {name: round(value, 2) for name, value in figures.items()}


def _of_size(case: Case, size: Measured) -> dict[str, Any]:
    times = [step.all for step in size.steps]
    phases = ("listen", "plan", "run", "commit")
    return {
        "step_ms_p50": p50(times),
        "step_ms_p95": p95(times),
        "step_ms_min": min(times),
        "step_cpu_ms_mean": sum(size.cpu) / len(size.cpu),
        **{f"step_{phase}_ms_p50": p50([getattr(step, phase) for step in size.steps]) for phase in phases},
        "hydration_rows_per_s": round(size.rows_read / size.hydration * 1e3),
        "hydration_s": size.hydration / 1e3,
        "state_rows": size.state_rows,
        "state_mib": size.state_bytes / 2**20,
        "duckdb_ms_p50": p50(case.duckdb_ms),
    }


if __name__ == "__main__":
    main()
