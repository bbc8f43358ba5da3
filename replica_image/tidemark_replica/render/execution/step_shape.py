"""The shape of a fragment's run: one task, or several with exchanges, chosen by the rows that it reads.

    few rows        one task: no exchange, whatever the state's size
    many rows       several tasks: each reads a part, rows are exchanged by key before every stateful operator

A small step pays tens of milliseconds for every task and every exchange; a large one gains by every core. Both shapes
leave the same state, so each step takes the shape that suits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.render.execution.prepare import prepare
from tidemark_replica.render.execution.runner import FragmentRun
from tidemark_replica.render.plan.exchanged_plan import exchanged_plan
from tidemark_replica.render.plan.jvm_frames import StageFrame

EXCHANGE_ROWS = 300_000
"""A fragment that reads more updates runs in several tasks. On two cores, aggregations gain from there on."""


@dataclass(frozen=True)
class ExchangePolicy:
    """The number of tasks of large runs, and the number of updates from which a run is large."""

    tasks: int
    from_rows: int = EXCHANGE_ROWS

    def is_large(self, rows: int) -> bool:
        """Whether a run over so many updates gets several tasks."""
        return self.tasks > 1 and rows >= self.from_rows


@dataclass(frozen=True)
class FragmentShape:
    """A fragment in one shape: its plan, its last stage, and its tasks."""

    plan: Any
    stage: StageFrame
    tasks: int


class FragmentShapes:
    """The shapes of one dataflow's fragments. Exchanged ones are prepared at their first use."""

    def __init__(self, session: Any, layouts: Mapping[ArrangementId, Layout], exchange_policy: ExchangePolicy) -> None:
        self._session, self.layouts, self.exchange_policy = session, layouts, exchange_policy
        self._prepared: dict[tuple[str, bool, bool], FragmentShape | None] = {}

    def of(self, work: FragmentRun) -> FragmentShape:
        """The shape in which a fragment runs now."""
        found = None
        if self.exchange_policy.is_large(work.input_rows):
            found = self._exchanged(work)
        if found is None:
            return FragmentShape(work.prepared.plan, work.prepared.fragment.stage, 1)
        # exchanges keep what went through them: a plan that is run again would read that. A copy is of the session that
        # is active on the JVM's side of this thread, which may be another than the one that made the plan
        sessions = getattr(self._session._jvm, "org.apache.spark.sql.classic.SparkSession")
        sessions.setActiveSession(self._session._jsparkSession)
        return FragmentShape(found.plan.clone(), found.stage, found.tasks)

    def _exchanged(self, work: FragmentRun) -> FragmentShape | None:
        fragment, tasks = work.prepared.fragment, self.exchange_policy.tasks
        which = (fragment.name, work.single_time, work.only_step)
        if which not in self._prepared:
            how = {"single_time": work.single_time, "only_step": work.only_step}
            stage = exchanged_plan(fragment.stage, self.layouts, **how)
            plan = None if stage is None else prepare(self._session, stage, tasks)
            self._prepared[which] = None if stage is None else FragmentShape(plan, stage, tasks)
        return self._prepared[which]
