"""Where large steps begin: the same delta in one task, and in as many as there are cores for, by its rows.

    exchange_ratio_PLAN_ROWS   a step in one task over one in several, with exchanges

By the clock it says from when on a step is done sooner; by CPU time what that costs the others.
"""

from __future__ import annotations

from dataclasses import replace

from bench.harness.clock import Cost, measured
from bench.harness.measure import Run
from bench.harness.ratios import Figures, ratio, statistics
from bench.harness.workload.queries import JOIN_AND_SUM, Q1, STATE, Query
from bench.steps.setting import Setting
from tidemark_replica.render.execution.step_shape import ExchangePolicy

NEVER = 1 << 62
PLANS = {"aggregation": Q1, "join": JOIN_AND_SUM, "distinct": next(q for q in STATE if q.name == "distinct")}


def figures(given: Setting) -> Figures:
    """An aggregation, a join of two with aggregation, and a DISTINCT, both ways, taking turns."""
    found = Figures()
    for name, query in PLANS.items():
        costs = _costs(given, query)
        for size in given.options.exchange_rows:
            one, several = costs[size, "one"], costs[size, "several"]
            of = f"{name}_{size}"
            found |= ratio("exchange", one, several, of)
            found |= statistics("step_one_task", one, of) | statistics("step_several_tasks", several, of)
    return found


def _costs(given: Setting, query: Query) -> dict[tuple[int, str], list[Cost]]:
    options, tasks = given.options, given.task.session.sparkContext.defaultParallelism
    ways = {"one": ExchangePolicy(tasks, NEVER), "several": ExchangePolicy(tasks, 1)}
    rows = [size for size in options.exchange_rows for _ in range(options.large_steps + 1)]
    costs: dict[tuple[int, str], list[Cost]] = {}
    with given.histories([options.lines], [query], rows) as (history,):
        runs = {way: Run(replace(given.task, exchange_policy=how), history, query) for way, how in ways.items()}
        for number, size in enumerate(rows):
            history.tick()
            for way, run in runs.items():
                cost, phases = measured(run.view.step)
                if number % (options.large_steps + 1):  # the first of each size warms up
                    costs.setdefault((size, way), []).append(Cost(phases.all, cost.cpu))
        for run in runs.values():
            run.check()
            run.view.close()
    return costs
