"""The cost of catching up: `python -m bench.catchup [--json]`.

    catchup_ratio   one step over 600 ticks of 10 updates over one step over a single tick with the same 6,000

The view joins lineitem with part and sums up; both ways lead to the same rows, which are compared with DuckDB's.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness.answers import check
from bench.harness.clock import Cost, measured
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.measure import Run
from bench.harness.ratios import Figures, ratio, rounded, statistics
from bench.harness.workload.queries import JOIN_AND_SUM
from bench.steps.setting import Options, Setting, setting

WARM_UP = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "small tables, few ticks")
    parser.add_argument("--lines", type=int, default=1_000_000, help="rows of lineitem (%(default)s)")
    parser.add_argument("--ticks", type=int, default=600, help="ticks to catch up with (%(default)s)")
    parser.add_argument("--rows", type=int, default=10, help="updates of a tick (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(lines=6000, ticks=10, rounds=1)
    circumstances = context() | {"load_before": load(), **{n: vars(given)[n] for n in ("lines", "ticks", "rows")}}
    with setting(Options()) as at:
        many, one = _measure(at, given.lines, given.ticks, given.rows, given.rounds)
    figures: Figures = ratio("catchup", many, one) | statistics("many_ticks", many) | statistics("one_tick", one)
    figures = rounded(figures)
    report("catchup", figures, circumstances | {"load_after": load()}, given.json)


def _measure(at: Setting, lines: int, ticks: int, rows: int, rounds: int) -> tuple[list[Cost], list[Cost]]:
    """(over many ticks, over one); deltas of the same seed, cut in two ways."""
    rounds += WARM_UP
    query, costs = [JOIN_AND_SUM], (list[Cost](), list[Cost]())
    with (
        at.histories([lines], query, [rows] * (ticks * rounds)) as (cut,),
        at.histories([lines], query, [rows * ticks] * rounds) as (whole,),
    ):
        views = [Run(at.driver, history, JOIN_AND_SUM) for history in (cut, whole)]
        for number in range(rounds):
            progress(f"round {number}: {ticks} ticks of {rows} updates")
            for run, of, found in zip(views, (ticks, 1), costs, strict=True):
                cost = _caught_up(run, of)
                if number >= WARM_UP:
                    found.append(cost)
            check("the same updates in many ticks and in one", views[0].view.answer(), views[1].view.answer())
    return costs


def _caught_up(run: Run, ticks: int) -> Cost:
    for _ in range(ticks):
        run.history.tick()
    cost, phases = measured(lambda: run.view.step(ticks))
    run.check()
    return Cost(phases.all, cost.cpu)


if __name__ == "__main__":
    main()
