"""Views that are computed anew at single times (`refresh_policy` auto): contents, holds, faults. Decisions are forced;
tests/replica/refreshes/test_step_costs.py has those by cost."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replica.one_view import OneView, files_below, lose_replies
from tests.replica.plans import COLUMNS, copies, shard, twice
from tests.replica.refreshes.automatic_decisions import decided_by
from tests.replica.tables import Table, persisted, small_table
from tests.replica.view_plans import VIEWS, T
from tidemark_persist import FilePart, open_shard
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.responses import Failure, FailureKind, Status
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription, IndexExport, SinkExport
from tidemark_protocol.plan.lir import Plan
from tidemark_protocol.plan.refresh import AUTO, INCREMENTAL, RefreshSchedule
from tidemark_replica.dataflow.refreshes import automatic as automatic_refreshes
from tidemark_replica.dataflow.refreshes.automatic import are_of_one_time
from tidemark_replica.render.errors import OutOfMemory, StepFailed

OFTEN = RefreshSchedule(every_ms=10)
ROWS = [(1, "a"), (2, None), (3, "c"), (20, "d"), (47, "e"), (70, "f")]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return small_table(tmp_path)


def automatic(
    folder: Path, as_of: int, table: Table, refresh: RefreshSchedule | None = None, plan: Plan = T, **more: Any
) -> DataflowDescription:
    dataflow = copies("d", as_of, source=table.metadata, view=shard("v", str(folder)), refresh=refresh, **more)
    (export,) = dataflow.sink_exports
    export = replace(export, sink=replace(export.sink, refresh_policy=AUTO))
    return replace(dataflow, sink_exports=(export,), objects=(BuildDesc(export.on, plan),))


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Decides for the times that a test puts here, and for all where it puts -1."""
    times = list[int]()
    decided_by(monkeypatch, lambda at: at in times or -1 in times)
    return times


def recomputed(view: OneView) -> list[int]:
    """The times at which it says that it was computed anew."""
    return [
        int(said.fields["time"]) for said in view.loop.said if isinstance(said, Status) and said.kind == "recomputed"
    ]


@pytest.mark.broad
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("of", VIEWS)
@pytest.mark.parametrize("refresh", [None, OFTEN], ids=["always", "at refreshes"])
def test_oracle_every_time_is_right_wherever_it_is_computed_anew(
    tmp_path: Path,
    table: Table,
    views: list[OneView],
    monkeypatch: pytest.MonkeyPatch,
    refresh: RefreshSchedule | None,
    of: str,
    seed: int,
) -> None:
    """Two views of one dataflow, several updates at a time or none, one replica or two that decide differently; with
    replies of appends that are lost, and processes that end at any moment. In few histories nothing is computed anew,
    as threads race: the next tests look whether it is."""
    rng, at = random.Random(f"{seed} {of}"), 10
    lose_replies(monkeypatch, rng)
    decided_by(monkeypatch, lambda _: rng.random() < (0.5 if refresh is None else 0.9))
    plan, contents = VIEWS[of]

    def begin(as_of: int) -> None:
        dataflow = twice(automatic(tmp_path, as_of, table, refresh, plan), tmp_path)
        views.append(OneView(tmp_path / f"r{len(views)}", dataflow))

    for _ in range(rng.choice((1, 2))):
        begin(6)
    for view in views:
        view.reach(Frontier.at(at))
    while at < 100:
        upper = at + rng.randrange(1, 17)
        table.append(upper, *((rng.choice(ROWS), rng.randrange(at, upper), 1) for _ in range(rng.choice((0, 1, 3, 8)))))
        at = upper
        running = [view for view in views if not view.driver._stopped]
        if rng.random() < 0.3:
            rng.choice(running).end_after(rng.randrange(1, 12))
            begin(min(open_shard(str(tmp_path / name)).state().upper for name in "vw") - 1)
        running = [view for view in views if not view.driver._stopped]
        for view in rng.sample(running, len(running)):
            view.reach(Frontier.at(at))

    for name in "vw":
        location = str(tmp_path / name)
        assert (open_shard(location).state().since, open_shard(location).state().upper) == (6, at)
        for time in range(6, at):
            shown = time if refresh is None else max(6, time - time % 10)
            assert persisted(location, time) == contents(table, shown), f"{name} at {time}"


@pytest.mark.parametrize("of", VIEWS)
@pytest.mark.parametrize("refresh", [None, OFTEN], ids=["always", "at refreshes"])
def test_one_time_is_computed_anew_and_those_around_it_are_not(
    tmp_path: Path, table: Table, views: list[OneView], anew: list[int], refresh: RefreshSchedule | None, of: str
) -> None:
    """Also where its inputs are far ahead. The state is kept, the inputs are held from the time on, and the table's
    history has no gap."""
    plan, contents = VIEWS[of]
    anew.append(20)
    views.append(view := OneView(tmp_path, automatic(tmp_path, 6, table, refresh, plan)))
    view.reach(Frontier.at(10))
    table.append(40, *((row, at, 1) for at in (12, 20, 20, 21, 33) for row in ROWS))
    held = []
    render = view.renderer.render
    monkeypatch_render(view, lambda d: (held.append((d.as_of, view.installed.reads_from)), render(d))[1])
    view.reach(Frontier.at(40))

    assert held == [(20, Frontier.at(20))]
    assert recomputed(view) == [20]
    assert view.driver._rendered is not None
    assert open_shard(str(tmp_path / "v")).state().since == 6
    for time in range(6, 40):
        shown = time if refresh is None else max(6, time - time % 10)
        assert persisted(str(tmp_path / "v"), time) == contents(table, shown), f"at {time}"


def monkeypatch_render(view: OneView, render: Callable[[DataflowDescription], Any]) -> None:
    view.renderer.render = render  # type: ignore[method-assign]


@pytest.mark.parametrize("error", [StepFailed("no room"), OutOfMemory("no memory")], ids=["fails", "out of memory"])
def test_crash_a_recomputation_that_fails_is_tried_again(
    tmp_path: Path,
    table: Table,
    views: list[OneView],
    anew: list[int],
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At its own time, though nobody schedules it again. After a lack of memory nothing more is computed anew."""
    monkeypatch.setattr(automatic_refreshes, "RETRY_SECONDS", 0.0)
    anew += [12, 22]
    views.append(view := OneView(tmp_path, automatic(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    render, fails = view.renderer.render, [error]

    def failing_once(description: DataflowDescription) -> Any:
        rendered = render(description)
        run = rendered.run
        rendered.run = lambda step: run(step) if not fails else _raise(fails.pop())  # type: ignore[method-assign]
        return rendered

    monkeypatch_render(view, failing_once)
    table.append(25, ((7, "g"), 12, 1), ((8, "h"), 22, 1))
    view.reach(Frontier.at(25))

    assert [f.kind for f in view.loop.said if isinstance(f, Failure)] == [FailureKind.STEP]
    assert recomputed(view) == ([12] if isinstance(error, OutOfMemory) else [12, 22])
    auto = view.driver._automatic
    assert auto is not None
    assert auto.costs.is_given_up == isinstance(error, OutOfMemory)
    for time in range(6, 25):
        assert persisted(str(tmp_path / "v"), time) == table.at(time), f"at {time}"


def _raise(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize("beside", ["a plain view", "an index"])
def test_a_dataflow_of_other_exports_steps_at_every_time(
    tmp_path: Path, table: Table, views: list[OneView], anew: list[int], beside: str
) -> None:
    """An index keeps its history. No resource asks for such a plan, but the protocol has it."""
    anew.append(-1)
    dataflow = twice(automatic(tmp_path, 6, table), tmp_path)
    auto, other = dataflow.sink_exports
    if beside == "an index":
        index = IndexExport(GlobalId("i"), auto.on, (0,), COLUMNS)
        dataflow = replace(dataflow, sink_exports=(auto,), index_exports=(index,))
    else:
        plain = SinkExport(other.id, other.on, replace(other.sink, refresh_policy=INCREMENTAL))
        dataflow = replace(dataflow, sink_exports=(auto, plain))
    views.append(view := OneView(tmp_path / "r", dataflow))
    table.append(14, ((7, "g"), 12, 1))
    view.reach(Frontier.at(14))
    assert recomputed(view) == []
    assert persisted(str(tmp_path / "v"), 13) == table.at(13)


def test_a_view_that_ends_at_a_time_that_is_computed_anew_is_sealed(
    tmp_path: Path, table: Table, views: list[OneView], anew: list[int]
) -> None:
    anew.append(24)
    views.append(view := OneView(tmp_path, automatic(tmp_path, 6, table, until=25)))
    view.reach(Frontier.at(10))
    table.append(40, ((3, "c"), 18, 1), ((4, "d"), 24, 1), ((5, "e"), 25, 1))
    view.reach(Frontier.empty())
    view.loop.run_until(lambda: view.installed.processed.is_empty, view.driver.advance)
    view.loop.run_until(lambda: not files_below(tmp_path / "scratch"), view.driver.advance)
    assert recomputed(view) == [24]
    assert open_shard(str(tmp_path / "v")).state().upper == EMPTY_SENTINEL
    for time in range(6, 40):
        assert persisted(str(tmp_path / "v"), time) == table.at(min(time, 24)), f"at {time}"


def test_a_view_that_may_not_write_steps_over_the_time(
    tmp_path: Path, table: Table, views: list[OneView], anew: list[int]
) -> None:
    """Another revision has fenced it: it must not wait for its table."""
    views.append(older := OneView(tmp_path / "a", automatic(tmp_path, 6, table), term=1))
    older.reach(Frontier.at(10))
    views.append(newer := OneView(tmp_path / "b", automatic(tmp_path, 6, table), term=2))
    table.append(14, ((7, "g"), 12, 1))
    newer.reach(Frontier.at(14))
    older.loop.run_until(lambda: older.installed.processed >= Frontier.at(14), older.driver.advance)
    anew.append(-1)
    table.append(20, ((8, "h"), 16, 1))
    older.loop.run_until(lambda: older.installed.processed >= Frontier.at(20), older.driver.advance)
    newer.reach(Frontier.at(20))
    assert (recomputed(older), recomputed(newer)) == ([], [16])
    assert persisted(str(tmp_path / "v"), 19) == table.at(19)


def test_a_new_client_hears_of_the_last_recomputation(
    tmp_path: Path, table: Table, views: list[OneView], anew: list[int]
) -> None:
    anew.append(-1)
    views.append(view := OneView(tmp_path, automatic(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    table.append(14, ((7, "g"), 11, 1), ((7, "g"), 12, 1))
    view.reach(Frontier.at(14))
    (*_, last) = [said for said in view.loop.said if isinstance(said, Status) and said.kind == "recomputed"]
    view.loop.said.clear()
    view.driver.report_again()
    assert recomputed(view) == [12]
    assert last.fields.keys() == {
        *("time", "rows", "input_rows", "step_ms", "hydration_ms", "elapsed_ms", "recomputations")
    }
    assert (last.fields["step_ms"], last.fields["hydration_ms"], last.fields["recomputations"]) == ("9000", "1000", "2")


def test_a_burst_of_several_files_is_of_one_time() -> None:
    """The cost of its step is learned; later files are not read."""

    def part(lower: int, upper: int) -> FilePart:
        return FilePart("l", "p", Time(lower), Time(upper), 5, 100)

    one, other = {GlobalId("t"): [part(7, 8), part(7, 8)]}, {GlobalId("u"): [part(9, 12)]}
    assert are_of_one_time(one, Frontier.at(20))
    assert are_of_one_time({}, Frontier.at(20))
    assert are_of_one_time(one | other, Frontier.at(8))
    assert are_of_one_time(one | other, Frontier.at(9))
    assert not are_of_one_time(one | other, Frontier.at(10))
    assert not are_of_one_time(other, Frontier.at(12))
    assert not are_of_one_time(other, Frontier.empty())
