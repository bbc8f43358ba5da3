"""The limit of small steps: the same delta as one Spark task and in the worker beside the driver, by its rows.

    task_driver_ratio_ROWS   a step as one Spark task over one in the worker

All dataflows share the worker process: a long step in it delays those of others.
"""

from __future__ import annotations

import math
from dataclasses import replace

from bench.harness.clock import Cost, measured
from bench.harness.measure import Run
from bench.harness.ratios import Figures, ratio, statistics
from bench.harness.workload.queries import Q3
from bench.steps.setting import Setting


def figures(given: Setting) -> Figures:
    """A three-way join with aggregation, both ways, taking turns."""
    options = given.options
    rows = [size for size in options.shape_rows for _ in range(options.large_steps)]
    warm_up = [options.delta_rows] * options.warm_up
    engines = (given.task, replace(given.driver, max_rows=math.inf))
    costs: dict[tuple[int, str], list[Cost]] = {}
    with given.histories([options.lines], [Q3], [*warm_up, *rows]) as (history,):
        runs = [Run(engine, history, Q3) for engine in engines]
        for size in [0 for _ in warm_up] + rows:
            history.tick()
            for run in runs:
                cost, phases = measured(run.view.step)
                costs.setdefault((size, run.measured.shape), []).append(Cost(phases.all, cost.cpu))
        for run in runs:
            run.check()
            run.view.close()
    found = Figures()
    for size in options.shape_rows:
        task, driver = (costs[size, engine.shape] for engine in engines)
        found |= ratio("task_driver", task, driver, str(size))
        found |= statistics("step_task", task, str(size)) | statistics("step_driver", driver, str(size))
    return found
