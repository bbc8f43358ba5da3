"""The cost of views of usual shapes, beside an empty job of Spark.

empty_job_ratio_PLAN          a step, shard to index, as one Spark task, over an empty DataFrame job of one task
empty_job_driver_ratio_PLAN   a step in the worker beside the driver over the same
duckdb_ratio_PLAN             DuckDB applying the delta in memory and computing the query over a step in the worker

The first two also come under their plain names: the greatest.
"""

from __future__ import annotations

from dataclasses import fields

from bench.harness.clock import p50
from bench.harness.engine import StepTimes
from bench.harness.measure import DRIVER, TASK, Measured, measure
from bench.harness.ratios import Figures, ratio, statistics, worst
from bench.harness.workload.queries import PLANS
from bench.steps.setting import Setting

PHASES = tuple(field.name for field in fields(StepTimes))


def figures(given: Setting) -> Figures:
    """All plans in both ways over one history, taking turns."""
    options, queries = given.options, list(PLANS.values())
    ticks = [options.delta_rows] * (options.warm_up + options.steps)
    with given.histories([options.lines], queries, ticks) as histories:
        rounds = measure([given.task, given.driver], histories, queries, options.steps, options.warm_up)
    found = statistics("empty_job", rounds.empty_job)
    for plan, query in PLANS.items():
        (task,), (driver,) = rounds.of(query, TASK), rounds.of(query, DRIVER)
        for view in (task, driver):
            of = f"{view.shape}_{plan}"
            found |= statistics("step", view.steps, of) | phases(view, of)
            found[f"jobs_per_step_{of}"] = sum(view.jobs) / len(view.jobs)
        found |= ratio("empty_job", task.steps, rounds.empty_job, plan)
        found |= ratio("empty_job_driver", driver.steps, rounds.empty_job, plan)
        found |= ratio("duckdb", driver.duckdb, driver.steps, plan)
    return found | worst(found, "empty_job", list(PLANS), max) | worst(found, "empty_job_driver", list(PLANS), max)


def phases(view: Measured, of: str) -> Figures:
    """Where a step's time goes, at the median."""
    return {f"step_{name}_ms_p50_{of}": p50([getattr(step, name) for step in view.phases]) for name in PHASES}
