"""What views of usual shapes cost, beside the least that Spark does.

empty_job_ratio_SHAPE   a step, shard to index, over an empty DataFrame job of one task in the same session
duckdb_ratio_SHAPE      DuckDB applying the delta in memory and computing the query over a step
"""

from __future__ import annotations

from dataclasses import fields

from bench.harness.clock import p50
from bench.harness.engine import StepTimes
from bench.harness.measure import Measured
from bench.harness.queries import PLANS
from bench.harness.ratios import Figures, ratio, statistics
from bench.steps.setting import WARM_UP, Setting

PHASES = tuple(field.name for field in fields(StepTimes))


def figures(given: Setting) -> Figures:
    """All shapes over one world, taking turns."""
    options, queries = given.options, list(PLANS.values())
    ticks = [options.delta_rows] * (WARM_UP + options.steps)
    with given.worlds([options.lines], queries, ticks) as worlds:
        rounds = given.measure(worlds, queries)
    found = statistics("empty_job", rounds.empty_job)
    for shape, query in PLANS.items():
        (view,) = rounds.of(query)
        found |= statistics("step", view.steps, shape) | phases(view, shape)
        found |= ratio("empty_job", view.steps, rounds.empty_job, shape) | ratio(
            "duckdb", view.duckdb, view.steps, shape
        )
    return found


def phases(view: Measured, of: str) -> Figures:
    """Where a step's time goes, at the median."""
    return {f"step_{name}_ms_p50_{of}": p50([getattr(step, name) for step in view.phases]) for name in PHASES}
