"""The shapes of a step: in one task, or in several with exchanges; chosen for every fragment by what it is to read.

    some rows       one task: no exchange, whatever the state's size
    many, or all    several tasks: each reads some of it, rows are exchanged by key before every stateful operator

A small step pays for every task and every exchange (tens of milliseconds each), a large one gains by every core. Both
shapes leave the same state, so each step takes the one that suits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.render.execution.prepare import prepare
from tidemark_replica.render.execution.runner import Work
from tidemark_replica.render.plan.exchanged_plan import exchanged
from tidemark_replica.render.plan.fragments import Fragment
from tidemark_replica.render.plan.jvm_frames import StageFrame

EXCHANGE_ROWS = 300_000
"""A fragment that reads more updates than that runs in several tasks; on two cores, aggregations gain from there on."""


@dataclass(frozen=True)
class Exchanging:
    """In how many tasks, and from how many updates on."""

    tasks: int
    from_rows: int = EXCHANGE_ROWS

    def is_large(self, rows: int) -> bool:
        """Whether so many updates are worth more than one task."""
        return self.tasks > 1 and rows >= self.from_rows


@dataclass(frozen=True)
class Shape:
    """A fragment as it is to run now."""

    plan: Any
    stage: StageFrame
    tasks: int


class Shapes:
    """The shapes of one dataflow's fragments; exchanged ones are prepared when they are first needed."""

    def __init__(self, session: Any, layouts: Mapping[ArrangementId, Layout], exchanging: Exchanging) -> None:
        self._session, self.layouts, self.exchanging = session, layouts, exchanging
        self._prepared: dict[tuple[str, bool], Shape | None] = {}

    def of(self, work: Work) -> Shape:
        """How to run it."""
        found = None
        if self.exchanging.is_large(work.reads):
            found = self._exchanged(work.prepared.fragment, at_once=work.at_once)
        if found is None:
            return Shape(work.prepared.plan, work.prepared.fragment.stage, 1)
        # exchanges keep what went through them: a plan that is run again would read that. A copy is of the session that
        # is active on the JVM's side of this thread, which may be another than the one that made the plan
        self._session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._session._jsparkSession)
        return Shape(found.plan.clone(), found.stage, found.tasks)

    def _exchanged(self, fragment: Fragment, *, at_once: bool) -> Shape | None:
        tasks, which = self.exchanging.tasks, (fragment.name, at_once)
        if which not in self._prepared:
            stage = exchanged(fragment.stage, self.layouts, at_once=at_once)
            plan = None if stage is None else prepare(self._session, stage, tasks)
            self._prepared[which] = None if stage is None else Shape(plan, stage, tasks)
        return self._prepared[which]
