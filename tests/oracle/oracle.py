"""The oracle at work: a case through the planner, the renderer and two batch engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.oracle.check import Case, Wrong, check_answers
from tests.oracle.harness import INDEX, SINK, DataflowHarness, Updates, harness
from tests.oracle.histories import History, random_bounds, random_history
from tests.oracle.kept_answers import KeptAnswers
from tests.oracle.reference import Answer, SparkReference, duckdb_answers
from tests.oracle.seeds import asks_for_many
from tests.oracle.variants.execution_location import check_workers, in_jobs
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.planning import Catalogue, ExportRequest, PlanRequest, Refused, Relation, ViewRequest
from tidemark_protocol.plan.dataflow import (
    DataflowDescription,
    IndexExport,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
)
from tidemark_protocol.types import SqlType
from tidemark_replica.render.execution.worker_runner import MAX_ROWS
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.values.arrow_types import sql_type


class Oracle:
    """One session for everything: the planner's, the renderer's, the reference's. Small steps are the workers'."""

    def __init__(self, spark: Any, workers: StepWorkers | None = None) -> None:
        self.spark, self.workers = spark, workers
        planning = spark.newSession()
        for key, value in {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}.items():
            planning.conf.set(key, value)
        self.catalyst = Catalyst(planning)
        self._reference = SparkReference(spark)
        self._kept = KeptAnswers()

    def describe(self, case: Case, of: DataflowHarness) -> DataflowDescription:
        """The case's dataflow: its plan's, or the planner's for its text."""
        if case.plan is not None:
            return of.describe(case.plan)
        relations = tuple(
            Relation(name, name, GlobalId(name), table.named, of.shard(name), short=True)
            for name, table in case.tables.items()
        )
        exports = (ExportRequest("i", "index", "v"), ExportRequest("m", "materializedView", "v"))
        request = PlanRequest("case", (ViewRequest("v", case.sql),), exports, Catalogue(relations), "o/")
        planned = plan(self.catalyst, request)
        if isinstance(planned, Refused):
            raise Wrong(f"{case.name}: the planner refuses it: {planned.diagnostics}")
        index, view = planned.exports
        sink = MaterializedViewSink(ShardMetadata(ShardId("sink"), str(of.folder / "sink"), view.columns))
        description = DataflowDescription(
            name=case.name,
            source_imports=planned.source_imports,
            index_imports=(),
            objects=planned.objects,
            index_exports=(IndexExport(INDEX, index.on, index.key, index.columns),),
            sink_exports=(SinkExport(SINK, view.on, sink),),
            as_of=Time(of.history.as_of),
        )
        check_dataflow(description)
        return description

    def check(self, case: Case, seed: int, folder: Path) -> None:
        """Raise Wrong if anything differs at any frontier, or between two ways to go through the history.

        The first one hydrates as a Spark job and takes its steps in a step worker, where it can. The second one cuts
        the history into other steps, leaves every expression to Catalyst, and needs Spark jobs alone. In `make test`
        these are a hydration and one step after it: half of the CPU time of a case is of such jobs.
        """
        history = random_history(case.tables, seed, changes=case.changes, tick=case.tick)
        with harness(self.spark, folder, case.tables, history) as of:
            description = self.describe(case, of)
            with in_jobs() as jobs:
                updates = of.run(description, random_bounds(history, seed), workers=self.workers)
            if self.workers is not None:
                check_workers(jobs, MAX_ROWS)
            cuts = None if asks_for_many() else 1
            again = of.run(description, random_bounds(history, seed + 1000, cuts), arrow=False)
        self.check_updates(case, history, description, updates)
        if updates != again:
            found = _difference(updates, again)
            raise Wrong(f"{case.name}: other steps, by Spark and Catalyst alone, give other updates: {found}")

    def check_updates(self, case: Case, history: History, description: DataflowDescription, updates: Updates) -> None:
        """The comparison with the batch engines."""
        sink = description.sink_exports[0].sink
        assert isinstance(sink, MaterializedViewSink)
        shown_types = [c.type for c in sink.shard.columns]
        spark = self._kept_answers(case, history, shown_types, updates)
        if spark is None:
            spark, types = self.spark_answers(case, history)
            if shown_types != [sql_type(t) for t in types]:
                raise Wrong(f"{case.name}: columns of types {shown_types}, Spark's are {types}")
        text = case.sql if case.duckdb == "same" else case.duckdb
        duck = {} if text is None else duckdb_answers(text, case.tables, history)
        lenient = {}
        if case.lenient is not None and any(a.rows is None for a in spark.values()):
            lenient = self._reference.answers(case.lenient, case.tables, history)[0]
        check_answers(case, updates, spark, duck, lenient)

    def spark_answers(self, case: Case, history: History) -> tuple[dict[int, Answer], list[pa.DataType]]:
        """Spark's answers at each frontier, and the types of their columns."""
        return self._reference.answers(case.spark or case.sql, case.tables, history, in_files=case.in_files)

    def _kept_answers(
        self, case: Case, history: History, types: list[SqlType], updates: Updates
    ) -> dict[int, Answer] | None:
        """Spark's answers, if they are kept and the view shows exactly them."""
        kept = self._kept.get(case, history)
        if kept is None or kept.types != [str(t) for t in types]:
            return None
        return kept.answers_if_shown(updates)


def _difference(one: Updates, other: Updates) -> str:
    return f"only {dict(one - other)} against {dict(other - one)}"
