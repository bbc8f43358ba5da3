"""The measurement itself: a view per size, and rounds in which every one of them takes a step.

Every answer is compared before the next step; `WrongAnswer` ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness.answers import check
from bench.harness.case import Case
from bench.harness.clock import Cost, measured
from bench.harness.context import progress
from bench.harness.engine import AS_OF, Source, StepTimes, View
from bench.harness.query import Planner, describe


@dataclass
class Measured:
    """One size's figures; `phases` says for each of the `steps` where its time went."""

    hydration: Cost
    rows_read: int
    steps: list[Cost] = field(default_factory=list)
    phases: list[StepTimes] = field(default_factory=list)
    state_rows: int = 0
    state_bytes: int = 0


@dataclass(frozen=True)
class Rounds:
    """All sizes, and the empty jobs that took turns with them."""

    sizes: Sequence[Measured]
    empty_job: Sequence[Cost]


class Run:
    """One size under way."""

    def __init__(self, session: Any, folder: Path, plan: Planner, sql: str, case: Case) -> None:
        self.case, self._lineitem, self._done = case, Source(folder, "lineitem", case.tables.lineitem), 0
        self._part = Source(folder, "part", case.tables.part)
        sources = {"lineitem": self._lineitem, "part": self._part}
        shards = {name: (source.location, source.schema) for name, source in sources.items()}
        self.view = View(session, folder, describe(plan, sql, shards, AS_OF), sources)
        rows = case.tables.lineitem.rows + case.tables.part.rows
        self.measured = Measured(measured(self.view.hydrate)[0], rows)
        self._check()

    def step(self, *, counts: bool) -> None:
        """The next delta; one that does not count warms up."""
        delta = self.case.deltas.all[self._done]
        self._lineitem.append(delta.updates(self._done + 1))
        self._part.append(None)
        cost, phases = measured(self.view.step)
        self._done += 1
        self._check()
        if counts:
            self.measured.steps.append(Cost(phases.all, cost.cpu))
            self.measured.phases.append(phases)

    def finish(self) -> Measured:
        """The figures; the view and its state go."""
        self.measured.state_rows, self.measured.state_bytes = self.view.state
        self.view.close()
        return self.measured

    def _check(self) -> None:
        what = f"the view over {self.case.label} rows after {self._done} deltas, compared with DuckDB"
        check(what, self.view.answer(), self.case.answers[self._done])


def measure(session: Any, folder: Path, plan: Planner, sql: str, cases: Sequence[Case], warm_up: int) -> Rounds:
    """All cases side by side; the first `warm_up` deltas of each do not count."""
    runs = []
    for case in cases:
        home = folder / case.label
        home.mkdir()
        run = Run(session, home, plan, sql, case)
        progress(f"{case.label}: hydrated in {run.measured.hydration.wall / 1e3:.1f} s")
        runs.append(run)
    job, empty = _empty_job(session), []
    for number in range(len(cases[0].deltas.all)):
        empty.append(measured(job)[0])
        for run in runs:
            run.step(counts=number >= warm_up)
    return Rounds([run.finish() for run in runs], empty[warm_up:])


def _empty_job(session: Any) -> Callable[[], object]:
    """The least that Spark does for a DataFrame: one task that makes one row."""
    frame = session.range(0, 1, 1, 1)
    return lambda: frame.collect()
