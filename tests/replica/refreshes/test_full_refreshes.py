"""Views that are computed anew at each refresh: contents, state, holds, faults; `refresh_policy` full."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.replica.one_view import OneView, files_below, lose_replies
from tests.replica.plans import COLUMNS, copies, shard, twice
from tests.replica.tables import Table, persisted, small_table
from tests.replica.view_plans import VIEWS
from tidemark_persist import Appended, open_shard
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.responses import Failure, FailureKind, Status
from tidemark_protocol.plan.dataflow import DataflowDescription, IndexExport
from tidemark_protocol.plan.refresh import FULL, RefreshSchedule
from tidemark_replica.render.errors import OutOfMemory, StepFailed
from tidemark_replica.sinks.table.refresh_progress import RefreshProgress
from tidemark_replica.sinks.table.refresh_times import RefreshTimes

OFTEN = RefreshSchedule(every_ms=10)
SELDOM = RefreshSchedule(every_ms=2000)


def fully(folder: Path, as_of: int, table: Table, refresh: RefreshSchedule = OFTEN, **more: Any) -> DataflowDescription:
    dataflow = copies("d", as_of, source=table.metadata, view=shard("v", str(folder)), refresh=refresh, **more)
    (export,) = dataflow.sink_exports
    return replace(dataflow, sink_exports=(replace(export, sink=replace(export.sink, refresh_policy=FULL)),))


def has_state(view: OneView) -> bool:
    return view.driver._rendered is not None


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return small_table(tmp_path)


def assert_refreshed(location: Path, table: Table, first: int, upper: int) -> None:
    state = open_shard(str(location)).state()
    assert (state.since, state.upper) == (first, upper)
    for at in range(first, upper):
        assert persisted(str(location), at) == table.at(max(first, at - at % 10)), f"at {at}"


@pytest.mark.parametrize("seed", range(8))
def test_oracle_every_time_shows_the_last_refresh(
    tmp_path: Path, table: Table, views: list[OneView], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The test has two views, however their inputs come; with replies of appends that are lost, one replica or two, and
    processes that end at any moment."""
    rng, at = random.Random(seed), 10
    lose_replies(monkeypatch, rng)
    views += [
        OneView(tmp_path / f"r{i}", twice(fully(tmp_path, 6, table), tmp_path)) for i in range(rng.choice((1, 2)))
    ]
    for view in views:
        view.reach(Frontier.at(at))
    rows = [(1, "a"), (2, None), (3, "c"), (4, "d")]
    while at < 100:
        upper = at + rng.randrange(1, 17)
        table.append(upper, *((rng.choice(rows), rng.randrange(at, upper), 1) for _ in range(rng.randrange(3))))
        at = upper
        running = [view for view in views if not view.driver._stopped]
        if rng.random() < 0.4:
            rng.choice(running).end_after(rng.randrange(1, 12))
            begins = min(open_shard(str(tmp_path / name)).state().upper for name in "vw") - 1
            views.append(OneView(tmp_path / f"r{len(views)}", twice(fully(tmp_path, begins, table), tmp_path)))
        running = [view for view in views if not view.driver._stopped]
        for view in rng.sample(running, len(running)):
            view.reach(Frontier.at(at))

    for name in "vw":
        assert_refreshed(tmp_path / name, table, 6, at)


@pytest.mark.parametrize("of", ["state", "clock"])
def test_a_view_with_state_or_of_the_clock_is_that_of_its_refresh(
    tmp_path: Path, table: Table, views: list[OneView], of: str
) -> None:
    """Rows that fall due between two refreshes come with the next one, though no state knows of them."""
    plan, contents = VIEWS[of]
    dataflow = fully(tmp_path, 6, table)
    built = replace(dataflow.objects[0], plan=plan)
    views.append(view := OneView(tmp_path, replace(dataflow, objects=(built,))))
    view.reach(Frontier.at(10))
    for upper in (14, 22, 29, 43, 61):
        table.append(
            upper, ((upper + 4, "x"), upper - 1, 1), ((upper - 7, "y"), upper - 2, 1), ((1, "a"), upper - 1, 1)
        )
        view.reach(Frontier.at(upper))
    view.loop.run_until(lambda: not has_state(view), view.driver.advance)
    for at in range(6, 61):
        assert persisted(str(tmp_path / "v"), at) == contents(table, max(6, at - at % 10)), f"at {at}"


def test_no_state_is_kept_and_no_history_between_two_refreshes(
    tmp_path: Path, table: Table, views: list[OneView]
) -> None:
    views.append(view := OneView(tmp_path, fully(tmp_path, 6, table, SELDOM)))
    view.reach(Frontier.at(10))
    for tick in range(200):
        table.append(11 + tick, ((tick, "x"), 10 + tick, 1))
        if tick % 20 == 19:
            view.reach(Frontier.at(table.upper))
    view.loop.run_until(lambda: view.installed.processed == Frontier.at(210), view.driver.advance)
    assert (view.steps, has_state(view)) == (1, False)
    (reported,) = view.installed.reports({view.id: view.write})
    assert (reported.write, reported.input, reported.output) == (Frontier.at(210),) * 3
    assert view.installed.reads_from == Frontier.at(209)
    view.loop.run_until(lambda: not files_below(tmp_path / "scratch"), view.driver.advance)
    assert persisted(str(tmp_path / "v"), 209) == table.at(6)

    table.append(2005, ((-1, "y"), 2003, 1))
    view.reach(Frontier.at(2005))
    view.loop.run_until(lambda: view.installed.processed == Frontier.at(2005), view.driver.advance)
    assert (view.steps, has_state(view)) == (2, False)
    assert persisted(str(tmp_path / "v"), 1999) == table.at(6)
    assert persisted(str(tmp_path / "v"), 2004) == table.at(2000)


def test_a_new_process_hydrates_before_it_waits(
    tmp_path: Path, table: Table, views: list[OneView], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a refresh is due: the controller takes a frontier beyond the as_of for the end of the hydration, which
    it has given a slot."""
    views.append(first := OneView(tmp_path / "a", fully(tmp_path, 6, table)))
    first.reach(Frontier.at(10))
    first.driver.stop()
    table.append(25, ((7, "g"), 18, 1))
    views.append(second := OneView(tmp_path / "b", fully(tmp_path, 9, table)))
    with monkeypatch.context() as patched:
        patched.setattr(second.renderer, "render", failing)
        second.loop.run_until(lambda: failures(second), second.driver.advance)
        for reported in second.installed.reports({second.id: second.write}):
            assert {reported.input, reported.output} <= {None, Frontier.at(9)}
        assert second.installed.processed == Frontier.at(9)
    second.reach(Frontier.at(25))
    second.loop.run_until(lambda: not has_state(second), second.driver.advance)
    assert_refreshed(tmp_path / "v", table, 6, 25)


def failing(*_: Any) -> Any:
    raise StepFailed("no room")


def failures(view: OneView) -> list[Failure]:
    return [said for said in view.loop.said if isinstance(said, Failure)]


@pytest.mark.parametrize("error", [StepFailed("no room"), OutOfMemory("no memory")], ids=["fails", "out of memory"])
def test_crash_a_refresh_that_fails_is_tried_again(
    tmp_path: Path, table: Table, views: list[OneView], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """At its own time, from the inputs at that time, though nobody schedules it again; rendering may fail too."""
    views.append(view := OneView(tmp_path, fully(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    table.append(14)
    view.reach(Frontier.at(14))
    view.loop.run_until(lambda: not has_state(view), view.driver.advance)
    render, fails, fails_to_run = view.renderer.render, ["render"], ["run"]

    def failing_once(description: DataflowDescription) -> Any:
        assert description.as_of == 20
        if fails:
            fails.pop()
            raise StepFailed("no room")
        rendered = render(description)
        run = rendered.run

        def once(step: Any) -> Any:
            if fails_to_run:
                fails_to_run.pop()
                raise error
            return run(step)

        monkeypatch.setattr(rendered, "run", once)
        return rendered

    monkeypatch.setattr(view.renderer, "render", failing_once)
    table.append(25, ((7, "g"), 19, 1), ((8, "h"), 22, 1))
    view.reach(Frontier.at(25))
    assert [failure.kind for failure in failures(view)] == [FailureKind.RENDER, FailureKind.STEP]
    assert_refreshed(tmp_path / "v", table, 6, 25)


@pytest.mark.parametrize("beside", ["a plain view", "an index"])
def test_a_dataflow_of_other_exports_keeps_its_state(
    tmp_path: Path, table: Table, views: list[OneView], beside: str
) -> None:
    """No resource asks for such a plan, but the protocol has it."""
    dataflow = twice(fully(tmp_path, 6, table), tmp_path)
    full, other = dataflow.sink_exports
    if beside == "an index":
        index = IndexExport(GlobalId("i"), full.on, (0,), COLUMNS)
        dataflow = replace(dataflow, sink_exports=(full,), index_exports=(index,))
    else:
        plain = replace(other, sink=replace(other.sink, refresh=None, refresh_policy="incremental"))
        dataflow = replace(dataflow, sink_exports=(full, plain))
    views.append(view := OneView(tmp_path / "r", dataflow))
    for upper in (13, 24):
        table.append(upper, ((7, "g"), upper - 2, 1))
        view.reach(Frontier.at(upper))
        assert has_state(view)
    assert persisted(str(tmp_path / "v"), 23) == table.at(20)


def test_a_view_that_another_revision_fences_goes_on_reading(
    tmp_path: Path, table: Table, views: list[OneView]
) -> None:
    """The view ends as any other, so that its inputs are not held."""
    views.append(older := OneView(tmp_path / "a", fully(tmp_path, 6, table), term=1))
    older.reach(Frontier.at(10))
    older.loop.run_until(lambda: not has_state(older), older.driver.advance)
    views.append(newer := OneView(tmp_path / "b", fully(tmp_path, 8, table), term=2))
    table.append(14, ((7, "g"), 12, 1))
    newer.reach(Frontier.at(14))
    table.append(57, ((8, "h"), 18, 1))
    newer.reach(Frontier.at(57))
    older.loop.run_until(lambda: older.installed.processed >= Frontier.at(57), older.driver.advance)
    assert persisted(str(tmp_path / "v"), 56) == table.at(50)


def test_an_older_revision_that_writes_meanwhile_is_corrected(
    tmp_path: Path, table: Table, views: list[OneView]
) -> None:
    """The table was last written under another term: the first write of a term is a refresh."""
    views.append(older := OneView(tmp_path / "a", fully(tmp_path, 6, table), term=1))
    older.reach(Frontier.at(10))
    views.append(newer := OneView(tmp_path / "b", fully(tmp_path, 8, table), term=2))
    table.append(14, ((7, "g"), 12, 1))
    newer.reach(Frontier.at(14))
    assert persisted(str(tmp_path / "v"), 13) == table.at(10)
    newer.loop.run_until(lambda: not has_state(newer), newer.driver.advance)
    table.append(27, ((8, "h"), 18, 1))
    newer.reach(Frontier.at(27))
    for at in range(10, 27):
        assert persisted(str(tmp_path / "v"), at) == table.at(at - at % 10), f"at {at}"


def test_a_term_of_its_own_that_is_replaced_while_it_waits(tmp_path: Path, table: Table, views: list[OneView]) -> None:
    """It computes the view at once, since the first write of a term is a refresh."""
    views.append(view := OneView(tmp_path, fully(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    table.append(13, ((7, "g"), 11, 1))
    view.reach(Frontier.at(13))
    view.loop.run_until(lambda: not has_state(view), view.driver.advance)
    (export,) = view.installed.exports.values()
    export.allow_writes(WriterTerm(2))
    view.driver.allow_writes(export)
    table.append(16, ((8, "h"), 14, 1))
    view.reach(Frontier.at(16))
    assert open_shard(str(tmp_path / "v")).state().term == 2
    table.append(33)
    view.reach(Frontier.at(33))
    view.loop.run_until(lambda: not has_state(view), view.driver.advance)
    assert persisted(str(tmp_path / "v"), 32) == table.at(30)


def test_a_view_that_ends_is_sealed(tmp_path: Path, table: Table, views: list[OneView]) -> None:
    views.append(view := OneView(tmp_path, fully(tmp_path, 6, table, until=25)))
    view.reach(Frontier.at(10))
    table.append(14, ((3, "c"), 12, 1))
    view.reach(Frontier.at(14))
    table.append(40, ((3, "c"), 18, 1), ((4, "d"), 24, 1), ((5, "e"), 25, 1))
    view.reach(Frontier.empty())
    view.loop.run_until(lambda: view.installed.processed.is_empty, view.driver.advance)
    assert open_shard(str(tmp_path / "v")).state().upper == EMPTY_SENTINEL
    for at in range(6, 40):
        assert persisted(str(tmp_path / "v"), at) == table.at(max(6, min(at, 24) - min(at, 24) % 10)), f"at {at}"


def test_the_last_of_given_times_is_the_last_refresh(tmp_path: Path, table: Table, views: list[OneView]) -> None:
    views.append(view := OneView(tmp_path, fully(tmp_path, 6, table, RefreshSchedule(at=(12, 21)))))
    view.reach(Frontier.at(10))
    table.append(30, ((3, "c"), 12, 1), ((4, "d"), 15, 1), ((5, "e"), 22, 1))
    view.reach(Frontier.empty())
    for at in range(6, 30):
        shown = 21 if at >= 21 else 12 if at >= 12 else 6
        assert persisted(str(tmp_path / "v"), at) == table.at(shown), f"at {at}"


@pytest.mark.parametrize(
    ("written_by", "upper", "frontier", "until"),
    [
        (1, 12, 12, 20),
        (1, 12, 20, 20),
        (1, 20, 20, 20),
        (1, 28, 15, 20),  # another replica of the revision has written it, and this one may still find it different
        (1, 20, 21, None),  # the refresh at 20 is staged
        (1, 12, 25, None),  # the refresh at 20 is not known here
        (2, 12, 12, None),
        (None, 0, 12, None),
    ],
)
def test_a_view_waits_where_its_table_has_all_refreshes(
    written_by: int | None, upper: int, frontier: int, until: int | None
) -> None:
    progress = RefreshProgress(frontier, lambda: "a commit", RefreshTimes(OFTEN))
    progress.term = 1
    assert progress.settled_until is None
    progress.observe(upper, written_by or 0)
    assert progress.settled_until == until


def test_errors_of_a_refresh_are_those_of_its_time(tmp_path: Path, table: Table, views: list[OneView]) -> None:
    """An error that is gone at the next refresh is gone from the status, though no state knew of it."""
    views.append(view := OneView(tmp_path, fully(tmp_path, 6, table)))
    view.reach(Frontier.at(10))
    append_errors(table, 24, ('{"code": "DIVIDE_BY_ZERO", "expression": "a / b"}', 18, 1))
    view.reach(Frontier.at(24))
    view.loop.run_until(lambda: not has_state(view), view.driver.advance)
    append_errors(table, 34, ('{"code": "DIVIDE_BY_ZERO", "expression": "a / b"}', 28, -1))
    view.reach(Frontier.at(34))
    view.loop.run_until(lambda: not has_state(view), view.driver.advance)

    told = [said.fields["errors"] for said in view.loop.said if isinstance(said, Status) and said.kind == "erroring"]
    assert told == ["1", "0"]
    errors = [open_shard(str(tmp_path / "v")).snapshot(at).column("__error").null_count for at in (19, 20, 29, 30)]
    rows = [open_shard(str(tmp_path / "v")).snapshot(at).num_rows for at in (19, 20, 29, 30)]
    assert [all_rows - without for all_rows, without in zip(rows, errors, strict=True)] == [0, 1, 1, 0]


def append_errors(table: Table, upper: int, *errors: tuple[str, int, int]) -> None:
    rows = pa.table(
        {
            "n": pa.nulls(len(errors), pa.int64()),
            "s": pa.nulls(len(errors), pa.string()),
            "__time": pa.array([time for _, time, _ in errors], pa.int64()),
            "__diff": pa.array([diff for _, _, diff in errors], pa.int64()),
            "__error": pa.array([error for error, _, _ in errors], pa.string()),
        }
    )
    done = table.shard.compare_and_append(rows, expected_upper=table.upper, new_upper=upper, term=1)
    assert isinstance(done, Appended)
    table.upper = upper
