"""The cost of building and keeping an arrangement: `python -m bench.arrange [--json]`.

groupby_ratio   rows/s from a shard to an index, over rows/s of Spark grouping the same rows by the same key
bytes_ratio     bytes on disk at rest over the bytes of the rows as Arrow columns
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness.answers import check
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.measure import Run
from bench.harness.ratios import Figures, ratio, rounded, statistics
from bench.harness.workload.queries import Query
from bench.harness.workload.tpch import Table
from bench.peers.spark_batch import recompute
from bench.steps.setting import Options, Setting, setting

COLUMNS = ("l_partkey", "l_orderkey", "l_linenumber", "l_extendedprice", "l_returnflag")
ROWS = Query("rows", f"SELECT {', '.join(COLUMNS)} FROM {{lineitem}}", exact=False)
GROUPED = Query(
    "grouped",
    """
    SELECT count(*) AS parts, sum(lines) AS lines, sum(price) AS price
    FROM (SELECT l_partkey, count(*) AS lines, sum(l_extendedprice) AS price FROM {lineitem} GROUP BY l_partkey)
    """,
)
WARM_UP_LINES = 6000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "a small table")
    parser.add_argument("--lines", type=int, default=10_000_000, help="rows of lineitem (%(default)s)")
    parser.add_argument("--repeat", type=int, default=2, help="how often each is done (%(default)s)")
    parser.add_argument("--spark-memory", default="4g", help="heap of the Spark that groups (%(default)s)")
    given = parser.parse_args(arguments)
    lines = 12_000 if given.quick else given.lines
    circumstances = context() | {"load_before": load(), "lines": lines, "repeat": given.repeat}
    with setting(Options(spark_memory=given.spark_memory)) as at:
        figures = rounded(_figures(at, lines, given.repeat))
    report("arrange", figures, circumstances | {"load_after": load()}, given.json)


def _figures(at: Setting, lines: int, repeat: int) -> Figures:
    with at.histories([WARM_UP_LINES], [ROWS], [2]) as (small,):
        Run(at.driver, small, ROWS, key=COLUMNS[:1]).finish()
    with at.histories([lines], [ROWS, GROUPED], [2]) as (history,):
        runs = [Run(at.driver, history, ROWS, key=COLUMNS[:1]).finish() for _ in range(repeat)]
        progress("Spark grouping the same rows")
        costs, answer = recompute(
            history.tables, GROUPED, history.folder, at.options.spark_memory, repeat, cached=False
        )
        check("Spark's groups, compared with DuckDB's", answer, history.answer(GROUPED)[1])
        built, raw = [run.hydration for run in runs], _raw_bytes(history.tables["lineitem"])
    return {
        **ratio("groupby", costs.parquet, built),
        "bytes_ratio": runs[-1].state_bytes / raw,
        **statistics("arrange", built),
        **statistics("groupby", costs.parquet),
        "rows_per_s": runs[-1].rows_read / min(cost.wall for cost in built) * 1e3,
        "raw_mib": raw / 2**20,
        "state_mib": runs[-1].state_bytes / 2**20,
    }


def _raw_bytes(lines: Table) -> int:
    return sum(batch.nbytes for batch in lines.batches(COLUMNS))


if __name__ == "__main__":
    main()
