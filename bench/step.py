"""The cost of a step: `python -m bench.step [--json] [--parts state,plans,recompute,shapes,...]`.

Views over TPC-H, then deltas of 100 lines, half of them retractions. A step is timed from the commit of its input to
that of its index. Compared engines take turns, so other load hits all alike. Before any time is reported,
answers have been compared with DuckDB's, and DuckDB's with those of the other engines.

    state      state_ratio_KIND                                 a step at 10M lines of state over one at 1M
    plans      empty_job_ratio_SHAPE                            a step over an empty Spark job of one task
    recompute  spark_recompute_ratio_SIZE, duckdb_ratio_SIZE    recomputing over a step
    shapes     task_driver_ratio_ROWS                           one Spark task over the worker beside the driver
    exchange   exchange_ratio_PLAN_ROWS                         one task over several with exchanges
    together   together_ratio_N                                 N jobs over one job of N tasks, where Catalyst is needed
    peers      pathway_100_ratio, pathway_10k_ratio             Pathway's step over ours
               dd_100_ratio, dd_10k_ratio                       ours over differential-dataflow's

Ratios are of medians by the clock; each also comes by CPU time (state_cpu_ratio, ...), which neighbours change less.
The plain name (state_ratio, ...) is the least favourable of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.harness.context import bench_parser, context, load, report
from bench.harness.ratios import Figures, rounded
from bench.harness.workload.deltas import SEED
from bench.peers.absent import PEERS
from bench.steps import exchange, peers, plans, recompute, shapes, state, together
from bench.steps.setting import Options, Setting, setting

PARTS = ("state", "plans", "recompute", "shapes", "exchange", "together", "peers")
QUICK = {
    "rows": "6000,12000",
    "lines": 12000,
    "recompute_lines": "12000",
    "steps": 2,
    "delta_rows": 10,
    "large_rows": 40,
    "shape_rows": "10,40",
    "exchange_rows": "40",
    "together": "2",
    "large_steps": 1,
    "warm_up": 1,
}


_PARTS: Mapping[str, Callable[[Setting], Figures]] = {
    "state": state.figures,
    "plans": plans.figures,
    "recompute": recompute.figures,
    "shapes": shapes.figures,
    "exchange": exchange.figures,
    "together": together.figures,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _arguments(arguments)
    options = Options(
        state_lines=_numbers(given.rows),
        lines=given.lines,
        recompute_lines=_numbers(given.recompute_lines),
        steps=given.steps,
        delta_rows=given.delta_rows,
        large_steps=given.large_steps,
        large_rows=given.large_rows,
        shape_rows=_numbers(given.shape_rows),
        exchange_rows=_numbers(given.exchange_rows),
        together=_numbers(given.together),
        spark_memory=given.spark_memory,
        peers=given.peers,
        warm_up=given.warm_up,
    )
    circumstances: dict[str, Any] = context() | {"load_before": load()}
    figures, absent = _run(options, given.parts.split(","))
    settings = {name: getattr(options, name) for name in ("lines", "steps", "delta_rows", "large_rows", "large_steps")}
    circumstances |= {**settings, "seed": SEED, "warm_up": options.warm_up, "absent": absent, "load_after": load()}
    report("step", figures, circumstances, given.json)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = bench_parser(__doc__, "small tables and few steps")
    parser.add_argument("--parts", default=",".join(PARTS), help="which of them to run (%(default)s)")
    parser.add_argument("--rows", default="1000000,10000000", help="lines of the states compared (%(default)s)")
    parser.add_argument("--lines", type=int, default=6_000_000, help="lines for plans and peers (%(default)s: SF1)")
    parser.add_argument("--recompute-lines", default="6000000", help="add 60000000 for SF10: 8 GiB (%(default)s)")
    parser.add_argument("--steps", type=int, default=30, help="deltas that are timed (%(default)s)")
    parser.add_argument("--delta-rows", type=int, default=100, help="rows of a delta (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=5, help="deltas before those (%(default)s)")
    parser.add_argument("--large-rows", type=int, default=10_000, help="rows of a large delta (%(default)s)")
    parser.add_argument("--large-steps", type=int, default=10, help="large deltas that are timed (%(default)s)")
    parser.add_argument("--shape-rows", default="100,1000,10000,30000", help="deltas taken both ways (%(default)s)")
    parser.add_argument(
        "--exchange-rows", default="10000,30000,100000,300000", help="deltas in one and several tasks (%(default)s)"
    )
    parser.add_argument("--together", default="4,16", help="dataflows that step at once (%(default)s)")
    parser.add_argument("--peers", default=",".join(PEERS), help="engines outside of Python (%(default)s)")
    parser.add_argument("--spark-memory", default="4g", help="heap of the Spark that computes anew (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(QUICK)
    if unknown := set(given.parts.split(",")) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: --parts takes {', '.join(PARTS)}")
    return given


def _run(options: Options, parts: Sequence[str]) -> tuple[Figures, dict[str, str]]:
    figures, absent = Figures(), dict[str, str]()
    with setting(options) as given:
        for name, part in _PARTS.items():
            if name in parts:
                figures |= part(given)
        if "peers" in parts:
            of_peers, absent = peers.figures(given)
            figures |= of_peers
    return rounded(figures), absent


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
