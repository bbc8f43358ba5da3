"""The gain of a home executor: `python -m bench.homes [--json]`.

    driver ─┬─ executor 1   home of view0, view2       each view twice: at home, and wherever Spark puts its steps
            └─ executor 2   home of view1, view3

    homes_ratio             a small step anywhere over one at home, one after the other
    homes_at_once_ratio_W   all views' steps at once, anywhere over at home, where Spark waits W for room there
    cold_reads_WAY          files of state that a step had to open: at_home, anywhere, at_home_at_once_W, ...,
                            exchanged (a large delta, divided among both executors)

The executors are two processes of one core on this machine, with one disk: a cold read costs the opening of a file, and
no access to another machine's disk or network.
"""

from __future__ import annotations

import statistics as of_numbers
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from bench.harness.clock import Cost, measured
from bench.harness.context import bench_parser, context, load, report
from bench.harness.measure import Run
from bench.harness.ratios import Figures, ratio, rounded, statistics
from bench.harness.workload.queries import Q3
from bench.steps.setting import Options, Setting, setting
from tests.waiting import until
from tidemark_replica.render.execution.executor_affinity import ExecutorAffinity, preferred_executor
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.spark.settings import SETTINGS

EXECUTORS, THREADS, EACH = 2, 4, 2
WAIT = "spark.locality.wait"
WAITS = (SETTINGS[WAIT], "100ms", "3s")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "a small table and few steps")
    parser.add_argument("--lines", type=int, default=600_000, help="rows of lineitem (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="rounds of deltas that are timed (%(default)s)")
    parser.add_argument("--delta-rows", type=int, default=100, help="rows of a delta (%(default)s)")
    parser.add_argument("--large-rows", type=int, default=30_000, help="rows of an exchanged one (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(lines=12_000, steps=2, large_rows=200)
    options = Options(lines=given.lines, steps=given.steps, delta_rows=given.delta_rows, large_rows=given.large_rows)
    circumstances = context() | {"load_before": load(), **vars(given)}
    with setting(options, f"local-cluster[{EXECUTORS},1,1024]") as at:
        figures = rounded(_figures(at))
    report("homes", figures, circumstances | {"load_after": load()}, given.json)


def _figures(at: Setting) -> Figures:
    options, measuring = at.options, _Measuring()
    rounds = [options.delta_rows] * (len(WAITS) + 1) * (options.steps + options.warm_up)
    large = [options.large_rows] * (options.steps // 4 + 2)
    with at.histories([options.lines], [Q3], [*rounds, *large]) as (history,):
        affinity = ExecutorAffinity.of(at.task.session)
        assert affinity is not None, "there are executors besides the driver"
        names = _names(affinity)
        at_home = [Run(replace(at.task, affinity=affinity), history, Q3, name=name) for name in names]
        anywhere = [Run(at.task, history, Q3, name=name) for name in names]
        for number in range(options.warm_up + options.steps):
            measuring.counts = number >= options.warm_up
            history.tick()
            measuring.one_by_one("anywhere", anywhere)
            measuring.one_by_one("at_home", at_home)
        for number in range(options.warm_up + options.steps):
            measuring.counts = number >= options.warm_up
            for wait in WAITS:
                history.tick()
                measuring.at_once("anywhere_at_once", anywhere)
                with _waiting(at.task.session, wait):
                    measuring.at_once(f"at_home_at_once_{wait}", at_home)
        for run in (*at_home, *anywhere):
            run.check()
            run.view.close()
        exchanged = Run(replace(at.task, exchange_policy=ExchangePolicy(EXECUTORS, 1)), history, Q3)
        for number in range(len(large)):
            measuring.counts = number > 0
            history.tick()
            measuring.one_by_one("exchanged", [exchanged])
        exchanged.check()
        exchanged.view.close()
    return measuring.figures()


def _names(affinity: ExecutorAffinity) -> list[str]:
    """The names of views that are at home in each executor, turn by turn."""
    until(lambda: len(affinity.executors()) == EXECUTORS)
    executors = affinity.executors()
    free = [f"view{number}" for number in range(1000)]
    turns = [[name for name in free if preferred_executor(name, executors) == home][:EACH] for home in executors]
    return [name for turn in zip(*turns, strict=True) for name in turn]


class _Measuring:
    """Costs and cold reads of steps, by the way in which they were taken."""

    def __init__(self) -> None:
        self.counts = True
        self._costs: defaultdict[str, list[Cost]] = defaultdict(list)
        self._cold: defaultdict[str, list[int]] = defaultdict(list)

    def one_by_one(self, way: str, runs: Sequence[Run]) -> None:
        for run in runs:
            self._take(way, run.view.step, [run])

    def at_once(self, way: str, runs: Sequence[Run]) -> None:
        self._take(way, partial(_run_at_once, runs), runs)

    def _take(self, way: str, step: Callable[[], object], runs: Sequence[Run]) -> None:
        cost, _ = measured(step)
        if self.counts:
            self._costs[way].append(cost)
            self._cold[way] += [run.view.cold_reads for run in runs]

    def figures(self) -> Figures:
        costs = self._costs
        found = ratio("homes", costs["anywhere"], costs["at_home"])
        for wait in WAITS:
            found |= ratio("homes_at_once", costs["anywhere_at_once"], costs[f"at_home_at_once_{wait}"], wait)
        for way, taken in costs.items():
            found[f"cold_reads_{way}"] = of_numbers.fmean(self._cold[way])
            found |= statistics(f"step_{way}", taken)
        return found


def _run_at_once(runs: Sequence[Run]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(run.view.step) for run in runs]:
            done.result()


@contextmanager
def _waiting(session: Any, wait: str) -> Iterator[None]:
    """Jobs that begin in the block wait so long for room where they prefer to be."""
    conf = session.sparkContext._jsc.sc().conf()
    kept = conf.get(WAIT)
    conf.set(WAIT, wait)
    try:
        yield
    finally:
        conf.set(WAIT, kept)


if __name__ == "__main__":
    main()
