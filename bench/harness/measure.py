"""The measurement: views over TPC-H histories, and rounds in which each takes a step; an empty Spark job takes turns.

Answers are compared before the next step; `WrongAnswer` ends the run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.harness.answers import check
from bench.harness.clock import Cost, measured
from bench.harness.context import progress
from bench.harness.engine import StepTimes, View
from bench.harness.query import Planner, describe
from bench.harness.workload.queries import Query
from bench.harness.workload.tpch_history import TpchHistory
from tidemark_replica.render.execution.executor_affinity import ExecutorAffinity
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.execution.worker_runner import MAX_ROWS
from tidemark_replica.render.step_worker.pool import StepWorkers

TASK, DRIVER = "task", "driver"


@dataclass(frozen=True)
class Engine:
    """Where views are planned and run; with `workers` small steps run in a process beside the driver."""

    session: Any
    plan: Planner
    workers: StepWorkers | None = None
    max_rows: float = MAX_ROWS
    """Updates of a step that they take."""
    exchange_policy: ExchangePolicy | None = None
    """When a step has several tasks; None: as in a replica."""
    affinity: ExecutorAffinity | None = None
    """Where the steps of a view of some name prefer to be."""

    @property
    def shape(self) -> str:
        """The shape of small steps: one Spark task, or none."""
        return TASK if self.workers is None else DRIVER


@dataclass
class Measured:
    """One view's figures; `phases` says for each of the `steps` where its time went, `duckdb` what it costs there."""

    query: Query
    shape: str
    label: str
    hydration: Cost
    rows_read: int
    steps: list[Cost] = field(default_factory=list)
    phases: list[StepTimes] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    duckdb: list[Cost] = field(default_factory=list)
    state_rows: int = 0
    state_bytes: int = 0


@dataclass(frozen=True)
class Rounds:
    """All views, and the empty jobs that took turns with them."""

    views: Sequence[Measured]
    empty_job: Sequence[Cost]

    def of(self, query: Query, shape: str) -> list[Measured]:
        """The view on every history, in the order of histories."""
        return [view for view in self.views if view.query == query and view.shape == shape]


class Run:
    """One running view over one history."""

    def __init__(
        self,
        engine: Engine,
        history: TpchHistory,
        query: Query,
        key: tuple[str, ...] | None = None,
        name: str = "bench",
    ) -> None:
        self.history, self.query = history, query
        home = Path(tempfile.mkdtemp(prefix=query.name, dir=history.folder))
        sources = {name: history.sources[name] for name in query.tables}
        shards = {name: (source.location, source.schema) for name, source in sources.items()}
        description = replace(describe(engine.plan, query.sql, shards, history.now, key), name=name)
        how = engine.workers, engine.max_rows, engine.exchange_policy, engine.affinity
        self.view = View(engine.session, home, description, sources, *how)
        rows = sum(history.tables[name].rows for name in query.tables)
        hydration, _ = measured(self.view.hydrate)
        self.measured = Measured(query, engine.shape, history.label, hydration, rows)
        progress(f"{query.name} over {history.label}: hydrated in {hydration.wall / 1e3:.1f} s")
        self.check()

    def step(self, applied: Cost, *, counts: bool, last: bool) -> None:
        """Apply the history's last delta to the view. `counts` False: a warm-up."""
        cost, phases = measured(self.view.step)
        if counts:
            self.measured.steps.append(Cost(phases.all, cost.cpu))
            self.measured.phases.append(phases)
            self.measured.jobs.append(self.view.jobs)
        if self.query.exact or last:
            answered = self.check()
            if counts:
                self.measured.duckdb.append(Cost(applied.wall + answered.wall, applied.cpu + answered.cpu))

    def check(self) -> Cost:
        """The view's rows are DuckDB's; what computing them cost DuckDB."""
        cost, wanted = self.history.answer(self.query)
        what = (
            f"{self.query.name} over {self.history.label} rows after {self.history.ticks} deltas, compared with DuckDB"
        )
        check(what, self.view.answer(), wanted)
        return cost

    def finish(self) -> Measured:
        """The figures; the view and its state go."""
        self.measured.state_rows, self.measured.state_bytes = self.view.state
        self.view.close()
        return self.measured


def measure(
    engines: Sequence[Engine], histories: Sequence[TpchHistory], queries: Sequence[Query], steps: int, warm_up: int
) -> Rounds:
    """All views over all histories side by side; the first `warm_up` of the deltas of each history do not count."""
    runs = [Run(engine, history, query) for history in histories for query in queries for engine in engines]
    job, empty = empty_job(engines[0].session), []
    for number in range(warm_up + steps):
        empty.append(measured(job)[0])
        applied = {history.label: history.tick() for history in histories}
        for run in runs:
            run.step(applied[run.history.label], counts=number >= warm_up, last=number == warm_up + steps - 1)
    return Rounds([run.finish() for run in runs], empty[warm_up:])


def empty_job(session: Any) -> Callable[[], object]:
    """The least that Spark does for a DataFrame: one task that makes one row."""
    frame = session.range(0, 1, 1, 1)
    return lambda: frame.collect()
