"""Whole dataflows of refreshed views, and of views that end: their steps, holds, reports and files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.replica.one_view import OneView, files_below
from tests.replica.plans import copies, shard
from tests.replica.tables import Table, persisted, small_table
from tidemark_persist import open_shard
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.plan.refresh import RefreshSchedule

SELDOM = RefreshSchedule(every_ms=2000)
OFTEN = RefreshSchedule(every_ms=10)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return small_table(tmp_path)


def test_hundreds_of_ticks_between_two_refreshes_are_one_step(
    tmp_path: Path, table: Table, views: list[OneView]
) -> None:
    """The table is as far as its inputs all the while, which are held where they were last read. It shows what was at
    its as_of, where it was written first."""
    out = shard("v", str(tmp_path))
    views.append(view := OneView(tmp_path, copies("d", 6, source=table.metadata, view=out, refresh=SELDOM)))
    view.reach(Frontier.at(10))
    assert view.steps == 1
    for tick in range(200):
        table.append(11 + tick, ((tick, "x"), 10 + tick, 1))
        if tick % 20 == 19:
            view.reach(Frontier.at(table.upper))
    (reported,) = view.installed.reports({view.id: view.write})
    assert (view.steps, view.installed.processed) == (1, Frontier.at(10))
    assert (reported.write, reported.input) == (Frontier.at(210), Frontier.at(10))
    assert persisted(out.location, 209) == table.at(6)

    table.append(2005, ((-1, "y"), 2003, 1))
    view.reach(Frontier.at(2005))
    assert (view.steps, view.installed.processed) == (2, Frontier.at(2001))
    assert persisted(out.location, 1999) == table.at(6)
    assert persisted(out.location, 2004) == table.at(2000)


def test_two_replicas_and_one_that_comes_later_agree(tmp_path: Path, table: Table, views: list[OneView]) -> None:
    """At every time that can be read the table is what its input was at the last refresh."""
    out = shard("v", str(tmp_path))
    views += [OneView(tmp_path / name, copies("d", 6, source=table.metadata, view=out, refresh=OFTEN)) for name in "ab"]
    for upper in (14, 19, 26, 44):
        table.append(upper, ((upper, "x"), upper - 1, 1))
        for view in views:
            view.reach(Frontier.at(upper))
    views.append(OneView(tmp_path / "c", copies("d", 43, source=table.metadata, view=out, refresh=OFTEN)))
    for upper in (47, 63):
        table.append(upper, ((upper, "x"), upper - 1, 1))
        for view in reversed(views):
            view.reach(Frontier.at(upper))

    assert open_shard(out.location).state().since == 6
    for at in range(6, 63):
        assert persisted(out.location, at) == table.at(max(6, at - at % 10)), f"at {at}"


@pytest.mark.parametrize("refresh", [None, OFTEN], ids=["a view", "refreshed"])
def test_a_view_that_ends_is_sealed_and_leaves_nothing(
    tmp_path: Path, table: Table, views: list[OneView], refresh: RefreshSchedule | None
) -> None:
    """With what held just before `until`. Its files go, and it holds nothing of its inputs. It says that it is
    finished, and so does one that begins anew, from wherever."""
    out = shard("v", str(tmp_path))
    ends = copies("d", 6, source=table.metadata, view=out, refresh=refresh, until=25)
    views.append(view := OneView(tmp_path, ends))
    view.reach(Frontier.at(10))
    table.append(40, ((3, "c"), 18, 1), ((4, "d"), 24, 1), ((5, "e"), 25, 1), ((6, "f"), 31, 1))
    view.reach(Frontier.empty())
    view.loop.run_until(lambda: not view.loop.watch.is_followed(table.metadata.shard_id), view.driver.advance)
    view.loop.run_until(lambda: not files_below(tmp_path / "scratch"), view.driver.advance)
    assert view.installed.processed.is_empty
    assert open_shard(out.location).state().upper == EMPTY_SENTINEL
    for at in range(6, 40):
        shown = min(at, 24) if refresh is None else max(6, min(at, 24) - min(at, 24) % 10)
        assert persisted(out.location, at) == table.at(shown), f"at {at}"
    (reported,) = view.installed.reports({view.id: view.write})
    assert {reported.write, reported.input, reported.output} == {Frontier.empty()}

    for as_of in (20, 35):
        ends = copies("d", as_of, source=table.metadata, view=out, until=25)
        views.append(again := OneView(tmp_path / str(as_of), ends))
        again.reach(Frontier.empty())
        again.loop.run_until(lambda of=again.installed: of.reads_from.is_empty, again.driver.advance)
        assert again.refusals == []
    assert again.steps == 0, "it cannot be begun"


def test_one_that_waits_after_a_failure_hears_that_its_table_is_finished(
    tmp_path: Path, table: Table, views: list[OneView]
) -> None:
    """Another replica has ended it: nothing is to be tried again, and nothing of the inputs is held for that."""
    out = shard("v", str(tmp_path))
    ends = copies("d", 6, source=table.metadata, view=out, until=9)
    views.append(waits := OneView(tmp_path / "waits", ends))
    waits.driver._backoff.failed(math.inf)
    views.append(other := OneView(tmp_path / "other", ends))
    other.reach(Frontier.empty())
    waits.loop.run_until(lambda: waits.installed.reads_from.is_empty, waits.driver.advance)

    assert waits.steps == 0


@pytest.mark.parametrize("refresh", [None, OFTEN], ids=["a view", "refreshed"])
def test_crash_one_that_died_before_the_seal_is_sealed_by_the_next(
    tmp_path: Path, table: Table, views: list[OneView], refresh: RefreshSchedule | None
) -> None:
    """From the last complete time on, where the inputs are past the end already."""
    out = shard("v", str(tmp_path))
    for name, upper, complete in (("a", 22, Frontier.at(22)), ("b", 40, Frontier.empty())):
        as_of = 6 if name == "a" else 21
        dataflow = copies("d", as_of, source=table.metadata, view=out, refresh=refresh, until=25)
        table.append(upper, ((upper, "x"), upper - 1, 1), ((7, "y"), min(24, upper - 2), 1))
        views.append(view := OneView(tmp_path / name, dataflow))
        view.reach(complete)
        view.driver.stop()

    for at in range(6, 40):
        shown = min(at, 24) if refresh is None else max(6, min(at, 24) - min(at, 24) % 10)
        assert persisted(out.location, at) == table.at(shown), f"at {at}"


def test_one_that_would_begin_after_its_end_is_refused(tmp_path: Path, table: Table, views: list[OneView]) -> None:
    """Its table was not finished, and what it should hold cannot be known."""
    table.append(40)
    out = shard("v", str(tmp_path))
    views.append(view := OneView(tmp_path, copies("d", 30, source=table.metadata, view=out, until=25)))
    view.loop.run_until(lambda: view.refusals, view.driver.advance)

    assert "it ends before 25, but its inputs can only be read from 30 on" in view.refusals[0]
    assert not (tmp_path / "v").exists()
