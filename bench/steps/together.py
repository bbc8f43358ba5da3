"""Small steps of several dataflows that need Catalyst: a Spark job each, or one job with a task for each of them.

    together_ratio_N       N steps as N jobs, submitted by four threads as a replica does, over one job of N tasks
    together_turns_ratio_N the same N jobs one after the other, over one job of N tasks
    apart_ms_p50_N ...     all N steps, from the commit of their input to that of the last index

A replica takes a job for each (docs/decisions/0016): this is what it would gain.

One job of N tasks is Spark's union of the N prepared plans, each of one partition; a task takes the description of its
number. The three ways take turns over the same views, whose answers are compared with DuckDB's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness.clock import Cost, measured, wall_p50
from bench.harness.context import progress
from bench.harness.measure import Run
from bench.harness.ratios import Figures, ratio, statistics
from bench.harness.workload.queries import Query
from bench.steps.setting import Setting
from tidemark_replica.render.execution import prepare
from tidemark_replica.render.execution.runner import FragmentRun
from tidemark_replica.render.execution.spark_runner import SparkRunner
from tidemark_replica.render.execution.step_shape import FragmentShape
from tidemark_replica.render.plan.pipeline import Pipeline
from tidemark_replica.render.task.description import PROPERTY
from tidemark_replica.render.task.jvm_input_slots import JvmInputSlots, StageFeed
from tidemark_replica.render.task.stage import Stage

THREADS = 4
"""The threads of a replica for Spark's jobs."""
WAIT_SECONDS = 600.0
"""If one of the steps fails before its job, the others do not wait for ever."""
LINES = 60_000
"""The cost of a small step does not depend on the state's size (`state`)."""
Steps = Sequence[Callable[[], object]]
QUERY = Query(
    "catalyst",
    """
    SELECT levenshtein(CAST(l_shipdate AS STRING), '1995-06-17') AS distance, count(*) AS lines,
           sum(l_quantity) AS quantity
    FROM {lineitem} GROUP BY levenshtein(CAST(l_shipdate AS STRING), '1995-06-17')
    """,
)


def figures(given: Setting) -> Figures:
    """For every number of dataflows."""
    found = Figures()
    for count in given.options.together:
        costs = _costs(given, count)
        found |= ratio("together", costs["apart"], costs["together"], str(count))
        found |= ratio("together_turns", costs["turns"], costs["together"], str(count))
        for way, measured_ in costs.items():
            found |= statistics(way, measured_, str(count))
    return found


def _costs(given: Setting, count: int) -> dict[str, list[Cost]]:
    options = given.options
    rounds = options.warm_up + options.steps
    with ExitStack() as stack:
        stack.enter_context(_members())
        sizes = [options.delta_rows] * (rounds * 3)
        (history,) = stack.enter_context(given.histories([min(options.lines, LINES)], [QUERY], sizes))
        runs = [Run(given.task, history, QUERY) for _ in range(count)]
        steps = [run.view.step for run in runs]
        ways: dict[str, Callable[[Steps], None]]
        ways = {"turns": _in_turns, "apart": partial(_at_once, THREADS), "together": _step_at_once}
        costs: dict[str, list[Cost]] = {way: [] for way in ways}
        for number in range(rounds):
            for way, take in ways.items():
                history.tick()
                cost, _ = measured(partial(take, steps))
                if number >= options.warm_up:
                    costs[way].append(cost)
        for run in runs:
            run.check()
            run.view.close()
    progress(f"{count} dataflows: " + ", ".join(f"{way} {wall_p50(taken):.0f} ms" for way, taken in costs.items()))
    return costs


def _in_turns(steps: Steps) -> None:
    for step in steps:
        step()


def _at_once(threads: int, steps: Steps) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(step) for step in steps]:
            done.result()


def _step_at_once(steps: Steps) -> None:
    with _gathered(len(steps)):
        _at_once(len(steps), steps)


@contextmanager
def _gathered(count: int) -> Iterator[None]:
    """Work is kept until there is so much of it; then it is one job."""
    waiting: list[tuple[FragmentRun, FragmentShape]] = []
    contexts: list[Any] = []

    def job() -> None:
        context = contexts[0]
        plans = [shape.plan.execute().toJavaRDD() for _, shape in waiting]
        rdds = context._gateway.new_array(context._jvm.org.apache.spark.api.java.JavaRDD, len(plans))
        for at, plan in enumerate(plans):
            rdds[at] = plan
        context.setLocalProperty(PROPERTY, "\n".join(str(work.description) for work, _ in waiting))
        context._jsc.union(rdds).count()
        context.setLocalProperty(PROPERTY, None)

    meeting = threading.Barrier(count, job, WAIT_SECONDS)

    def run(runner: SparkRunner, work: FragmentRun, shape: FragmentShape) -> None:
        waiting.append((work, shape))
        contexts.append(runner._context)
        meeting.wait()

    alone, SparkRunner._run = SparkRunner._run, run  # type: ignore[method-assign]
    try:
        yield
    finally:
        SparkRunner._run = alone  # type: ignore[method-assign]


@contextmanager
def _members() -> Iterator[None]:
    """Dataflows that are built in the block may be members of one job."""
    alone, prepare.run_stage = prepare.run_stage, _run_member  # type: ignore[attr-defined]
    try:
        yield
    finally:
        prepare.run_stage = alone  # type: ignore[attr-defined]


def _run_member(name: str, tree: Pipeline, feed: StageFeed, rows: Iterable[Any]) -> Iterator[Any]:
    """In the place of `stage.run_stage`: the task's number says which description is its own."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    descriptions = str(task.getLocalProperty(PROPERTY)).split("\n")
    own = Path(descriptions[task.partitionId() % len(descriptions)])
    stage = Stage(own, int(task.taskAttemptId()), JvmInputSlots(feed.slots, rows))
    yield from stage.evaluate(tree)
    stage.report(name)
