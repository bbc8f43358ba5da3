"""A step against recomputing the view: lineitem joined with part, summed up by brand and flag.

spark_recompute_ratio_SIZE  Spark computing the query from Parquet over a step
spark_cached_ratio_SIZE     the same from tables that Spark has cached
duckdb_ratio_SIZE           DuckDB applying the delta in memory and computing the query over a step
"""

from __future__ import annotations

from bench.harness.answers import check
from bench.harness.context import progress
from bench.harness.measure import Measured
from bench.harness.ratios import Figures, ratio, statistics, worst
from bench.harness.workload.queries import JOIN_AND_SUM
from bench.harness.workload.tpch import LINES_PER_SCALE_FACTOR, label
from bench.harness.workload.tpch_history import TpchHistory
from bench.peers.spark_batch import recompute
from bench.steps.plans import phases
from bench.steps.setting import Setting

# of a larger database Spark's cache would not fit beside the rest
CACHED_LINES_MAX = 12_000_000


def figures(given: Setting) -> Figures:
    """The figures of every size, one after the other: the state of the largest takes most of a machine."""
    found = Figures()
    for lines in given.options.recompute_lines:
        ticks = [given.options.delta_rows] * (given.options.warm_up + given.options.steps)
        with given.histories([lines], [JOIN_AND_SUM], ticks) as histories:
            (view,) = given.measure(histories, [JOIN_AND_SUM]).views
            found |= _against_spark(given, histories[0], view)
            found |= _of_size(view, size_name(lines))
    sizes = [size_name(lines) for lines in given.options.recompute_lines]
    return found | worst(found, "spark_recompute", sizes, min) | worst(found, "duckdb", sizes, min)


def size_name(lines: int) -> str:
    """sf1, sf10; other sizes by their lines."""
    whole, rest = divmod(lines, LINES_PER_SCALE_FACTOR)
    return label(lines) if rest else f"sf{whole}"


def _of_size(view: Measured, size: str) -> Figures:
    hydrated = view.hydration
    return {
        **statistics("step", view.steps, size),
        **phases(view, size),
        **statistics("duckdb", view.duckdb, size),
        **ratio("duckdb", view.duckdb, view.steps, size),
        f"hydration_s_{size}": hydrated.wall / 1e3,
        f"hydration_cpu_s_{size}": hydrated.cpu / 1e3,
        f"hydration_rows_per_s_{size}": view.rows_read / hydrated.wall * 1e3,
        f"state_rows_{size}": view.state_rows,
        f"state_mib_{size}": view.state_bytes / 2**20,
    }


def _against_spark(given: Setting, history: TpchHistory, view: Measured) -> Figures:
    lines = history.tables["lineitem"]
    size, small = size_name(_requested_lines(given, history)), _requested_lines(given, history) <= CACHED_LINES_MAX
    progress(f"{history.label}: Spark as a batch")
    now = dict(history.tables) | {
        "lineitem": history.duckdb.write("lineitem", history.folder / "now.parquet", lines.schema)
    }
    costs, answer = recompute(now, JOIN_AND_SUM, history.folder, given.options.spark_memory, cached=small)
    check(f"Spark over {history.label} rows, compared with DuckDB", answer, history.answer(JOIN_AND_SUM)[1])
    found = statistics("spark_recompute", costs.parquet, size)
    found |= ratio("spark_recompute", costs.parquet, view.steps, size)
    if costs.cached:
        found |= statistics("spark_cached", costs.cached, size) | ratio("spark_cached", costs.cached, view.steps, size)
    return found


def _requested_lines(given: Setting, history: TpchHistory) -> int:
    return next(lines for lines in given.options.recompute_lines if label(lines) == history.label)
