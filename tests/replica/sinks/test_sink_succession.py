"""Two revisions of a view over one table: the new one watches, takes over, and the old one is fenced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.oracle.variants.in_process import without_jobs
from tests.replica.one_view import OneView
from tests.replica.plans import COLUMNS, copies, shard
from tests.replica.sinks.test_crash_sink import Update, View, assert_exact, contents, history, persisted
from tests.replica.tables import Table
from tests.replica.worker_loop import Loop
from tidemark_persist import Shard, create_or_open, open_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.responses import Failure, FailureKind
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.dataflow.export_state import ExportState
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.table import materialized_view
from tidemark_replica.values.arrow_types import arrow_schema

SHARED = 12


def revisions(folder: Path) -> tuple[View, View, list[Update], list[Update]]:
    """Their contents are equal before 12, and then others. The old one has written so far; the new one has computed
    it too."""
    common = history(3, SHARED)
    old = common + [u for u in history(4, 40) if u[2] >= SHARED and u[3] > 0]
    new = common + [u for u in history(5, 40) if u[2] >= SHARED and u[3] > 0]
    first = View(folder / "r1", folder / "shard", old, 3, Loop())
    first.sink.allow_writes(WriterTerm(1))
    first.step(SHARED)
    first.write_until(SHARED)
    second = View(folder / "r2", folder / "shard", new, SHARED - 2, Loop())
    second.step(SHARED)
    return first, second, old, new


def watched(view: View, upper: int) -> None:
    """It has seen so much of the shard, and has nothing more to make of that."""
    view.write_until(upper)
    idle = [0]

    def advance() -> None:
        view.sink.advance()
        idle[0] = idle[0] + 1 if view.sink._job is None else 0

    view.loop.run_until(lambda: idle[0] > 20, advance)


def test_a_view_that_seems_equal_beside_another_writer_is_corrected(tmp_path: Path) -> None:
    """Read-only, the new one sees what it wants in the shard; then the old one writes what is wrong to it."""
    first, second, old, new = revisions(tmp_path)
    watched(second, SHARED)
    first.step(25)
    first.write_until(25)
    second.step(25)
    watched(second, 25)
    second.sink.allow_writes(WriterTerm(2))
    second.step(30)
    second.write_until(30)

    for at in range(SHARED, 25):
        assert persisted(tmp_path / "shard", at) == contents(old, at), f"at {at}: the past stays"
    for at in range(25, 30):
        assert persisted(tmp_path / "shard", at) == contents(new, at), f"at {at}: the new contents, without a gap"


def test_a_sink_that_waits_long_keeps_up_and_stages_about_the_size_of_its_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be as far as the old one at any time, however large its snapshot and however much has changed; and what
    it then writes is right."""
    monkeypatch.setattr(materialized_view, "WAITING_ROWS", 16)
    first, second, old, new = revisions(tmp_path)
    comes_and_goes = [(n, "x", time, 1 - 2 * (time % 2), None) for time in range(SHARED, 40) for n in (7, 8, 9)]
    old += comes_and_goes
    new[:] = [*[u for u in new if u[2] < SHARED], *comes_and_goes]
    watched(second, SHARED)
    for upper in range(SHARED + 4, 37, 4):
        assert not second.sink.is_full
        first.step(upper)
        first.write_until(upper)
        second.step(upper)
        watched(second, upper)
    assert len(list((tmp_path / "r2").iterdir())) <= 4, "steps and what is made of them"
    second.sink.allow_writes(WriterTerm(2))
    second.step(40)
    second.write_until(40)

    for at in range(SHARED, 36):
        assert persisted(tmp_path / "shard", at) == contents(old, at), f"at {at}: the past stays"
    for at in range(36, 40):
        assert persisted(tmp_path / "shard", at) == contents(new, at), f"at {at}: the new contents, without a gap"
    assert list((tmp_path / "r2").iterdir()) == []


def test_the_old_one_writes_between_the_permission_and_the_first_append(tmp_path: Path) -> None:
    """The new one is not fenced off by that, and does not take what the old one wrote for its own."""
    first, second, _, new = revisions(tmp_path)
    second.sink.allow_writes(WriterTerm(2))
    watched(second, SHARED)
    first.step(25)
    first.write_until(25)
    second.step(30)
    second.write_until(30)

    for at in range(25, 30):
        assert persisted(tmp_path / "shard", at) == contents(new, at)


def test_permission_counts_that_comes_while_an_append_of_before_is_fenced(tmp_path: Path) -> None:
    """The verdict is of the term under which it was tried, and there is another one now: it is tried under that."""
    first, _, old, _ = revisions(tmp_path)
    other = View(tmp_path / "other", tmp_path / "shard", old, SHARED - 2, Loop())
    other.step(30)
    other.sink.allow_writes(WriterTerm(2))
    other.write_until(30)
    first.step(40)
    first.sink.advance()
    assert first.sink._job is not None, "an append under the first term is on its way"
    first.sink.allow_writes(WriterTerm(2))
    first.write_until(40)

    for at in range(30, 40):
        assert persisted(tmp_path / "shard", at) == contents(old, at), f"at {at}"


def test_an_old_revision_that_is_cut_off_is_fenced_by_the_first_append(tmp_path: Path) -> None:
    """It goes on writing, is refused, says so, and stops: nothing of it comes after the new contents."""
    first, second, _, new = revisions(tmp_path)
    second.sink.allow_writes(WriterTerm(2))
    second.step(20)
    second.write_until(20)
    first.step(40)
    first.loop.run_until(lambda: first.loop.said and _fenced(first), first.sink.advance)
    second.step(30)
    second.write_until(30)

    assert first.sink.term is None
    assert second.sink.write_frontier == Frontier.at(30)
    for at in range(20, 30):
        assert persisted(tmp_path / "shard", at) == contents(new, at)


def _fenced(view: View) -> bool:
    return _has_failed(view, FailureKind.FENCED)


def _has_failed(view: View, kind: str) -> bool:
    return any(isinstance(response, Failure) and response.kind == kind for response in view.loop.said)


def test_a_new_client_hears_why_a_view_is_not_written(tmp_path: Path) -> None:
    """It was said once, to the one before: nothing else would ever tell."""
    source, out = Table(tmp_path, "t"), shard("v", str(tmp_path))
    source.append(10, ((1, "a"), 3, 1))
    create_or_open(out.location, arrow_schema(COLUMNS), shard_id=out.shard_id).fence(2)
    with without_jobs():
        view = OneView(tmp_path, copies("d", 6, source=source.metadata, view=out), term=1)
        try:
            view.loop.run_until(lambda: _kinds(view.loop) >= {"fenced"}, view.driver.advance)
            view.loop.said.clear()
            view.driver.report_again()
            assert _kinds(view.loop) == {"fenced"}

            view.driver.allow_writes(ExportState(view.id, Frontier.at(6), term=WriterTerm(3)))
            view.reach(Frontier.at(10))
            view.loop.said.clear()
            view.driver.report_again()
            assert _kinds(view.loop) == set()
        finally:
            view.end()


def test_one_that_was_dropped_says_nothing_of_an_append_that_ends_later(tmp_path: Path) -> None:
    """There may be another of its id by then, which the client would take it for."""
    first, second, _, _ = revisions(tmp_path)
    second.sink.allow_writes(WriterTerm(2))
    second.step(20)
    second.write_until(20)
    first.step(40)
    first.loop.run_until(lambda: first.sink._job is not None, first.sink.advance)
    first.sink.stop()
    first.loop.run_until(lambda: first.sink._job is None)

    assert first.sink.term is None
    assert _kinds(first.loop) == set()


def _kinds(loop: Loop) -> set[str]:
    return {response.kind for response in loop.said if isinstance(response, Failure)}


@pytest.mark.parametrize("fenced_first", [True, False])
def test_a_sink_that_meets_the_rows_of_another_revision_stops(fenced_first: bool, tmp_path: Path) -> None:
    """An edit is reverted: the same view under a newer term, by a replica that heard of neither. It has let go of what
    it had written before the edit, so it cannot correct what came with that, and touches nothing."""
    first, second, _, new = revisions(tmp_path)
    second.sink.allow_writes(WriterTerm(2))
    second.step(20)
    second.write_until(20)
    first.step(30)
    if fenced_first:
        first.loop.run_until(lambda: _fenced(first), first.sink.advance)
    first.sink.allow_writes(WriterTerm(3))
    first.loop.run_until(lambda: _has_failed(first, FailureKind.SINK), first.sink.advance)

    assert first.sink.is_superseded
    assert first.sink.term is None
    assert open_shard(str(tmp_path / "shard")).state().upper == 20
    for at in range(SHARED, 20):
        assert persisted(tmp_path / "shard", at) == contents(new, at)


def test_one_that_never_wins_goes_on_under_any_term_while_its_own_revision_writes(tmp_path: Path) -> None:
    """Each has corrected what it found, under the term that this one had too."""
    first, _, old, _ = revisions(tmp_path)
    other = View(tmp_path / "other", tmp_path / "shard", old, SHARED - 2, Loop())
    for term, upper in ((2, 20), (3, 24)):
        for view in (first, other):
            view.sink.allow_writes(WriterTerm(term))
        other.step(upper)
        other.write_until(upper)
        watched(first, upper)
        first.step(upper)
    first.sink.allow_writes(WriterTerm(4))
    first.step(30)
    first.write_until(30)

    assert_exact(tmp_path / "shard", old, 30)


def test_one_that_is_to_go_on_where_no_other_wrote_goes_on(tmp_path: Path) -> None:
    """The other revision ended before it came to write. A newer term alone is no reason to stop."""
    first, _, old, _ = revisions(tmp_path)
    first.sink.allow_writes(WriterTerm(3))
    first.step(30)
    first.write_until(30)

    assert not first.sink.is_superseded
    assert persisted(tmp_path / "shard", 29) == contents(old, 29)


class DiesAfterTheAppend(ShardHandles):
    """The process that uses these writers does nothing but its first append."""

    def __init__(self) -> None:
        super().__init__()
        self.appended = False

    def writer(self, shard: ShardMetadata) -> Shard:
        real = super().writer(shard)
        outer = self

        class Dying:
            def __getattr__(self, name: str) -> Any:
                if outer.appended:
                    raise OSError("the process is dead")
                return getattr(real, name)

            def compare_and_append(self, *arguments: Any, **named: Any) -> Any:
                if outer.appended:
                    raise OSError("the process is dead")
                real.compare_and_append(*arguments, **named)
                outer.appended = True
                raise OSError("the process is dead")

        return Dying()  # type: ignore[return-value]


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "lives"])
@pytest.mark.parametrize("as_of", [SHARED - 1, SHARED, SHARED + 4], ids=["before", "at", "beyond"])
def test_crash_a_revision_that_begins_where_its_table_ends_shows_no_time_that_it_does_not_know(
    as_of: int, dies: bool, tmp_path: Path
) -> None:
    """It begins before, at, or beyond the table's upper, and may die with its first append. Complete times stay as they
    were, and can be read unless times are left out; those can never be, now or when another goes on."""
    _, _, old, new = revisions(tmp_path)
    table = tmp_path / "shard"
    since = open_shard(str(table)).state().since if as_of <= SHARED else as_of
    handles = DiesAfterTheAppend() if dies else ShardHandles()
    first = View(tmp_path / "first", table, new, as_of, Loop(handles))
    first.step(25)
    first.sink.allow_writes(WriterTerm(2))
    first.loop.run_until(lambda: open_shard(str(table)).state().upper == 25, first.sink.advance)
    assert_exact_since(table, since, old, new)

    second = View(tmp_path / "second", table, new, 24, Loop())
    second.step(40)
    second.sink.allow_writes(WriterTerm(2))
    second.write_until(40)
    assert_exact_since(table, since, old, new)


def assert_exact_since(table: Path, since: int, old: list[Update], new: list[Update]) -> None:
    """Read from there on, the table is the old view's before SHARED and the new one's from then on."""
    state = open_shard(str(table)).state()
    assert state.since == since
    for at in range(since, state.upper):
        assert persisted(table, at) == contents(old if at < SHARED else new, at), f"at {at}"
