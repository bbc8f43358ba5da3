"""A dataflow of policy auto that is behind, or whose recomputation lacks memory, gets on as an incremental one does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replica.one_view import OneView
from tests.replica.refreshes.automatic_decisions import decided_by
from tests.replica.refreshes.test_automatic_refreshes import OFTEN, automatic, monkeypatch_render, recomputed
from tests.replica.tables import Table, persisted, small_table
from tests.waiting import until
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.messages.responses import OUT_OF_MEMORY, Failure, Status
from tidemark_protocol.plan.refresh import INCREMENTAL, RefreshSchedule
from tidemark_replica.dataflow.refreshes import automatic as automatic_refreshes
from tidemark_replica.dataflow.refreshes.automatic import AutomaticRefreshes
from tidemark_replica.dataflow.refreshes.step_costs import StepCosts
from tidemark_replica.render.errors import OutOfMemory

BURST = 200


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return small_table(tmp_path)


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hydration of 12 s; steps over a burst of 40 s, over a row of 0.1 s. Nothing else is learned."""

    def known(self: StepCosts) -> None:
        begin(self)
        for _ in range(2):
            hydrated(self, 100_000, 12.0)
        stepped(self, 1, 0.1)
        stepped(self, BURST, 40.0)

    begin, hydrated, stepped = StepCosts.__init__, StepCosts.hydrated, StepCosts.stepped
    monkeypatch.setattr(StepCosts, "__init__", known)
    monkeypatch.setattr(StepCosts, "hydrated", lambda *_: None)
    monkeypatch.setattr(StepCosts, "stepped", lambda *_: None)


def tick(table: Table, time: int, rows: int) -> None:
    table.append(time + 1, *(((n, "a"), time, 1) for n in range(rows)))


@pytest.mark.usefixtures("costs")
@pytest.mark.parametrize("refresh", [None, OFTEN], ids=["always", "at refreshes"])
def test_a_dataflow_that_is_behind_by_many_bursts_takes_one_step(
    tmp_path: Path, table: Table, views: list[OneView], refresh: RefreshSchedule | None
) -> None:
    """The views are as with policy incremental. One hydration for each would let more come than it computes."""
    auto = automatic(tmp_path / "a", 6, table, refresh)
    (export,) = automatic(tmp_path / "i", 6, table, refresh).sink_exports
    plain = replace(auto, sink_exports=(replace(export, sink=replace(export.sink, refresh_policy=INCREMENTAL)),))
    views += [OneView(tmp_path / "a", auto), OneView(tmp_path / "i", plain)]
    for view in views:
        view.reach(Frontier.at(10))
    before = [view.steps for view in views]
    for time in range(10, 50):
        tick(table, time, BURST)
    for view in views:
        view.reach(Frontier.at(50))
    automatic_steps, steps = (view.steps - begin for view, begin in zip(views, before, strict=True))
    assert (recomputed(views[0]), automatic_steps) == ([], steps)


@pytest.mark.usefixtures("costs")
def test_after_a_recomputation_it_catches_up_before_the_next_one(
    tmp_path: Path, table: Table, views: list[OneView]
) -> None:
    """More bursts come while it hydrates. Once it is level, one is computed anew again."""
    views.append(view := OneView(tmp_path, automatic(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    tick(table, 10, BURST)
    tick(table, 11, 1)
    render = view.renderer.render

    def meanwhile(description: Any) -> Any:
        if description.as_of == 10:
            tick(table, 12, BURST)
            until(lambda: view.driver.input_frontier() >= Frontier.at(13))
        return render(description)

    monkeypatch_render(view, meanwhile)
    view.reach(Frontier.at(13))
    assert recomputed(view) == [10]
    tick(table, 13, BURST)
    view.reach(Frontier.at(14))
    assert recomputed(view) == [10, 13]
    for time in range(6, 14):
        assert persisted(str(tmp_path / "v"), time) == table.at(time), f"at {time}"


@pytest.mark.usefixtures("costs")
def test_a_step_that_fails_does_not_make_it_be_behind(tmp_path: Path, table: Table, views: list[OneView]) -> None:
    """Its inputs cannot be listed for a moment, when a burst has come."""
    views.append(view := OneView(tmp_path, automatic(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    tick(table, 10, BURST)
    listed, fails = view.driver._inputs.step, [OSError("no answer")]

    def failing_once(lower: int, upper: int) -> Any:
        if fails:
            raise fails.pop()
        return listed(lower, upper)

    view.driver._inputs.step = failing_once  # type: ignore[method-assign]
    view.driver._inputs.step_cached = lambda lower, upper: None  # type: ignore[method-assign]
    view.reach(Frontier.at(11))
    assert (recomputed(view), fails) == ([10], [])


def test_crash_a_recomputation_without_memory_waits_long_and_is_the_last_one(
    tmp_path: Path, table: Table, views: list[OneView], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try may take memory from other dataflows. The replica tells of the first one, also new clients."""
    monkeypatch.setattr(automatic_refreshes, "RETRY_SECONDS", math.inf)
    decided_by(monkeypatch, lambda at: at in (12, 22))
    views.append(view := OneView(tmp_path, automatic(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    render, tries = view.renderer.render, list[int]()

    def without_memory(description: Any) -> Any:
        rendered = render(description)
        run = rendered.run

        def run_once(step: Any) -> Any:
            tries.append(step.lower)
            if len(tries) == 1:
                raise OutOfMemory("no memory")
            return run(step)

        rendered.run = run_once  # type: ignore[method-assign]
        return rendered

    monkeypatch_render(view, without_memory)
    table.append(25, ((7, "g"), 12, 1), ((8, "h"), 22, 1))
    view.loop.run_until(lambda: any(isinstance(said, Failure) for said in view.loop.said), view.driver.advance)
    for _ in range(20):
        view.driver.advance()
    assert not view.driver.is_stepping
    assert tries == [12]
    assert (recomputed_times(view), given_up(view)) == (["12"], [{"time": "12"}])
    view.loop.said.clear()
    view.driver.report_again()
    assert (recomputed_times(view), given_up(view)) == (["12"], [{"time": "12"}])
    assert [said.reason for said in view.loop.said if isinstance(said, Failure)] == [OUT_OF_MEMORY]

    view.driver.retry_now()
    view.reach(Frontier.at(25))
    assert recomputed(view) == [12]
    for time in range(6, 25):
        assert persisted(str(tmp_path / "v"), time) == table.at(time), f"at {time}"


def recomputed_times(view: OneView) -> list[str]:
    """The times that were told to be computed anew now."""
    return [s.fields["time"] for s in view.loop.said if isinstance(s, Status) and s.kind == "recomputing"]


def given_up(view: OneView) -> list[dict[str, str]]:
    return [s.fields for s in view.loop.said if isinstance(s, Status) and s.kind == "recomputations_given_up"]


def test_a_step_without_memory_gives_nothing_up(
    tmp_path: Path, table: Table, views: list[OneView], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a recomputation, which had enough."""
    decided_by(monkeypatch, lambda at: at in (12, 18))
    views.append(view := OneView(tmp_path, automatic(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    table.append(14, ((7, "g"), 12, 1))
    view.reach(Frontier.at(14))
    rendered = view.driver._rendered
    assert rendered is not None
    run, fails = rendered.run, [OutOfMemory("no memory")]

    def failing_once(step: Any) -> Any:
        if fails:
            raise fails.pop()
        return run(step)

    rendered.run = failing_once  # type: ignore[method-assign]
    table.append(17, ((7, "g"), 16, 1))
    view.reach(Frontier.at(17))
    assert (fails, given_up(view)) == ([], [])
    table.append(20, ((7, "g"), 18, 1))
    view.reach(Frontier.at(20))
    assert recomputed(view) == [12, 18]


def test_the_rest_of_a_file_is_not_computed_anew_for_the_rows_that_were(
    tmp_path: Path, table: Table, views: list[OneView], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of two times: a burst, and one row. The cost of the step over that row is learned for no other size."""
    decided_by(monkeypatch, lambda at: True)
    monkeypatch.setattr(StepCosts, "least_rows", lambda self, rows: BURST // 2)
    learned, ran = [], AutomaticRefreshes.ran

    def learning(self: AutomaticRefreshes, cost: Any, *, hydrates: bool) -> None:
        if not hydrates and cost.rows is not None:
            learned.append(cost.rows)
        ran(self, cost, hydrates=hydrates)

    monkeypatch.setattr(AutomaticRefreshes, "ran", learning)
    views.append(view := OneView(tmp_path, automatic(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    table.append(13, *(((n, "a"), 11, 1) for n in range(BURST)), ((7, "g"), 12, 1))
    view.reach(Frontier.at(13))
    assert recomputed(view) == [11]
    assert set(learned) <= {0, 1}
