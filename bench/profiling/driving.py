"""Steps of one query, timed from outside; what happened in the workers is joined by the clock of the machine.

listen ─ plan ─ describe ─┬─ submit ─ launch ─ [ stages, by what they did ] ─ end ─┬─ believe ─ ... ─ commit
     driver               └──────── a job, or an order to the step worker ─────────┘      driver
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from bench.harness.answers import check
from bench.harness.clock import Cost, measured
from bench.harness.engine import AS_OF, Source, View
from bench.harness.query import Planner, describe
from bench.harness.workload.deltas import Delta
from bench.harness.workload.queries import Query as Plain
from bench.harness.workload.tpch import Tables
from bench.peers.duckdb_apply import DuckDb
from bench.profiling import spans
from bench.profiling.parts import SPARK, WORKER, Run, Spent, StepRecord, parts, tasks
from bench.profiling.plans import QUERIES, lines_changed, tables
from bench.profiling.shapes import Steps, exchange_policy, workers
from tidemark_replica.render.execution import prepare
from tidemark_replica.render.execution.runner import complete_report
from tidemark_replica.render.execution.spark_runner import SparkRunner
from tidemark_replica.render.execution.worker_runner import WorkerRunner
from tidemark_replica.render.task.description import StepDescription


@dataclass
class Profiled:
    """The steps of one query, each as milliseconds by label; `costs` of steps and of empty jobs in between.

    `jobs` and `tasks` are those of the last step.
    """

    parts: list[Spent] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    empty: list[Cost] = field(default_factory=list)
    jobs: int = 0
    tasks: int = 0


@dataclass(frozen=True)
class Profiler:
    """Where views are planned and run; Python calls tell of themselves in `folder`/profile."""

    session: Any
    plan: Planner
    folder: Path
    scale_factor: str

    def profile(self, name: str, shape: str, steps: Steps) -> Profiled:
        """Hydrate the view, then step it; at the end it is what DuckDB computes."""
        query, log = QUERIES[name], self.folder / "profile"
        data = tables(query, self.scale_factor)
        home = self.folder / f"{name}-{shape}"
        home.mkdir()
        sources = {table: Source(home, table, at) for table, at in data.items()}
        shards = {table: (source.location, source.schema) for table, source in sources.items()}
        description = describe(self.plan, query.sql, shards, AS_OF)
        cores = self.session.sparkContext.defaultParallelism
        changes = lines_changed(data["lineitem"], steps.all, steps.rows)
        with instrumented() as record, workers(shape) as beside:
            how = beside, math.inf, exchange_policy(shape, cores)
            view = View(self.session, home, description, sources, *how)
            view.hydrate()
            result = self._stepped(view, sources, changes, steps.warm_up, record, log)
            what = f"{name} in the shape {shape}, compared with DuckDB"
            check(what, view.answer(), _answer(Plain(name, query.sql), data, changes))
            view.close()
        return result

    def _stepped(
        self,
        view: View,
        sources: dict[str, Source],
        changes: Sequence[Delta],
        warm_up: int,
        record: StepRecord,
        log: Path,
    ) -> Profiled:
        result, empty = Profiled(), self.session.range(0, 1, 1, 1)
        for number, delta in enumerate(changes):
            for table, source in sources.items():
                source.append(delta.updates(number + 1) if table == "lineitem" else None)
            record.forget()
            spans.forget(log)
            job = measured(empty.collect)[0]
            cost, phases = measured(view.step)
            calls = spans.calls(log)
            if number >= warm_up:
                result.empty.append(job)
                result.costs.append(Cost(phases.all, cost.cpu))
                result.parts.append(parts(record, calls, vars(phases)))
            result.jobs, result.tasks = record.jobs, tasks(calls)
        return result


@contextmanager
def instrumented() -> Iterator[StepRecord]:
    """The driver's own times by label, and workers that report theirs."""
    record = StepRecord()
    patches = [
        mock.patch.object(prepare, "run_stage", spans.run_stage),
        mock.patch.object(StepDescription, "write", _adding(record, "describe", StepDescription.write)),
        mock.patch(f"{SparkRunner.__module__}.complete_report", _adding(record, "believe reports", complete_report)),
        mock.patch.object(SparkRunner, "_run", _waiting(record, SPARK, SparkRunner._run)),
        mock.patch.object(WorkerRunner, "_run", _waiting(record, WORKER, WorkerRunner._run)),
    ]
    for patch in patches:
        patch.start()
    try:
        yield record
    finally:
        for patch in patches:
            patch.stop()


def _answer(query: Plain, data: Tables, changes: Sequence[Delta]) -> pa.Table:
    database = DuckDb(data, [query])
    for delta in changes:
        database.apply(delta)
    return database.answer(query)


def _adding(record: StepRecord, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            record.spent[label] += (time.perf_counter() - begin) * 1e3

    return timed


def _waiting(record: StepRecord, where: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        begin = time.time() * 1e3
        try:
            return function(*arguments)
        finally:
            record.runs.append(Run(where, begin, time.time() * 1e3))

    return timed
