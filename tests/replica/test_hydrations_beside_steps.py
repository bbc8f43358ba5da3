"""What hydrates takes no thread from the steps of what serves: as many dataflows hydrate at a time as step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import BOUND
from tests.oracle.in_process import without_jobs
from tests.replica import two_dataflows
from tests.replica.loop import Loop
from tests.replica.tables import Table
from tests.replica.two_dataflows import LOSER, OTHER, TwoDataflows
from tidemark_replica.jobs import Jobs
from tidemark_replica.render import RenderedDataflow, Step, StepOutcome


class OneThread(Loop):
    """For all steps together."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = Jobs(self.mailbox, "one", 1)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The loser hydrates until this is set."""
    enough, run = threading.Event(), RenderedDataflow.run

    def slowly(dataflow: RenderedDataflow, step: Step) -> StepOutcome:
        if step.hydrates and LOSER in dataflow.description.export_ids:
            assert enough.wait(BOUND)
        outcome: Any = run(dataflow, step)
        return outcome

    monkeypatch.setattr(RenderedDataflow, "run", slowly)
    monkeypatch.setattr(two_dataflows, "Loop", OneThread)
    yield enough
    enough.set()


def test_what_serves_steps_on_while_all_that_may_hydrate_do(
    tmp_path: Path, table: Table, long: threading.Event
) -> None:
    """For minutes or hours: a view that stood still so long would be of no use."""
    with without_jobs():
        two = TwoDataflows(tmp_path, table)
        try:
            two.reach(10, OTHER)
            for upper in (20, 30):
                table.append(upper, ((upper, "b"), upper - 1, 1))
                two.reach(upper, OTHER)
            assert not two.installed[LOSER].hydrated
            long.set()
            two.reach(30, LOSER)
            assert two.rows(LOSER, 29) == two.rows(OTHER, 29)
        finally:
            long.set()
            two.end()
