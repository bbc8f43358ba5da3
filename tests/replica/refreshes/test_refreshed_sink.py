"""The sink of a refreshed view against real shards: competing, comparing, cut short, with errors."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.replica.sinks.test_crash_sink import VIEW, CutShort, Update, View, contents, history, persisted
from tests.replica.worker_loop import Loop
from tidemark_persist import Shard, open_shard
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.ids import ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import Failure, FailureKind
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink, new_commit_id
from tidemark_replica.sinks.table.refresh_progress import RefreshProgress
from tidemark_replica.sinks.table.refresh_times import RefreshTimes

TENS = RefreshTimes(RefreshSchedule(every_ms=10))


class Refreshed(View):
    """A replica's sink, and its dataflow, which steps when the sink says so."""

    refreshes = TENS

    def made(self, shard: ShardMetadata) -> MaterializedViewSink:
        at, loop = Frontier.at(self.as_of), self.loop
        progress = RefreshProgress(self.as_of, new_commit_id, self.refreshes)
        return MaterializedViewSink(
            VIEW, shard, at, loop.handles, loop.watch, loop.jobs, loop.said.append, progress=progress
        )

    def follow(self, inputs: int) -> None:
        """One look at inputs that are complete up to there."""
        goal = self.sink.step_goal(Frontier.at(inputs)).encode()
        goal = inputs if self.frontier == self.as_of else goal
        if goal > self.frontier:
            self.step(goal)
        self.sink.advance()

    def reach(self, inputs: int) -> None:
        upper = Frontier.at(inputs)
        self.loop.run_until(lambda: self.sink.write_frontier >= upper, lambda: self.follow(inputs))


def assert_refreshed(location: Path, updates: list[Update], upper: int, first: int, since: int | None = None) -> None:
    """`first`: when it was written for the first time."""
    state = open_shard(str(location)).state()
    assert (state.upper, state.since) == (upper, first if since is None else since)
    for at in range(state.since, upper):
        assert persisted(location, at) == contents(updates, max(first, at - at % 10)), f"at {at}"


@pytest.mark.parametrize("seed", range(3))
def test_every_time_shows_the_last_refresh(tmp_path: Path, seed: int) -> None:
    """Rows and errors, however the inputs come."""
    updates, rng, inputs = history(seed, 60), random.Random(seed), 5
    view = Refreshed(tmp_path / "r1", tmp_path / "shard", updates, 4, Loop())
    view.sink.allow_writes(WriterTerm(1))
    while inputs < 60:
        view.reach(inputs)
        inputs = min(60, inputs + rng.randrange(1, 14))
    view.reach(60)

    assert any(error for *_, error in updates)
    assert_refreshed(tmp_path / "shard", updates, 60, 4)
    assert list((tmp_path / "r1").iterdir()) == []


@pytest.mark.parametrize("seed", range(3))
def test_competing_replicas_agree(tmp_path: Path, seed: int) -> None:
    """Each at its own pace, one begun anew in the middle; and whoever never wins keeps no files."""
    updates, rng, loop = history(seed, 60), random.Random(seed), Loop()
    views = [Refreshed(tmp_path / f"r{i}", tmp_path / "shard", updates, 2, loop) for i in range(2)]
    for inputs in sorted(rng.sample(range(4, 60), 14)):
        if inputs > 30 and len(views) == 2:
            views[0].sink.stop()
            views[0] = Refreshed(tmp_path / "r2", tmp_path / "shard", updates, rng.randrange(3, 30), loop)
            views.append(views[0])
        for view in views[:2]:
            view.sink.allow_writes(WriterTerm(1))
            if rng.random() < 0.7:
                view.follow(inputs)
    for inputs in (75, 85):
        for view in views[:2]:
            view.reach(inputs)
    loop.run_until(
        lambda: not any(list((tmp_path / name).iterdir()) for name in ("r1", "r2")),
        lambda: [view.follow(85) for view in views[:2]],
    )

    assert_refreshed(tmp_path / "shard", updates, 85, open_shard(str(tmp_path / "shard")).state().since)


def test_crash_lost_replies_are_tried_again_and_change_nothing(tmp_path: Path) -> None:
    """Before the commit, after it, or not at all: at refreshes, and between them."""
    updates = history(5, 40)
    view = Refreshed(tmp_path / "r1", tmp_path / "shard", updates, 3, Loop(CutShort()))
    view.sink.allow_writes(WriterTerm(1))
    for inputs in (5, 9, 14, 21, 28, 40):
        view.reach(inputs)

    assert_refreshed(tmp_path / "shard", updates, 40, 3)


class Dies(ShardHandles):
    """At an append, before or after it landed, the process is killed: nothing else is ever done by it."""

    def __init__(self, at: int, *, landed: bool) -> None:
        super().__init__()
        self.left, self.landed, self.dead = at, landed, False

    def existing_writer(self, location: str, id: Any) -> Shard:
        return self._dying(super().existing_writer(location, id))

    def writer(self, shard: ShardMetadata) -> Shard:
        return self._dying(super().writer(shard))

    def _dying(self, real: Shard) -> Shard:
        outer = self

        class Dying:
            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def compare_and_append(self, *arguments: Any, **named: Any) -> Any:
                outer.left -= 1
                if outer.left >= 0:
                    return real.compare_and_append(*arguments, **named)
                if outer.landed and not outer.dead:
                    real.compare_and_append(*arguments, **named)
                outer.dead = True
                raise OSError("the process is dead")

        return Dying()  # type: ignore[return-value]


@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(7))
def test_crash_killed_at_any_append_the_next_process_goes_on(tmp_path: Path, at: int, landed: bool) -> None:
    """The first write, the ones between refreshes, and those at refreshes."""
    updates, handles = history(9, 50), Dies(at, landed=landed)
    first = Refreshed(tmp_path / "r1", tmp_path / "shard", updates, 3, Loop(handles))
    first.sink.allow_writes(WriterTerm(1))
    for inputs in (5, 8, 12, 18, 24, 29, 33):
        first.loop.run_until(
            lambda to=inputs: handles.dead or first.sink.write_frontier >= Frontier.at(to),
            lambda to=inputs: first.follow(to),
        )
    upper = open_shard(str(tmp_path / "shard")).state().upper
    again = Refreshed(tmp_path / "r2", tmp_path / "shard", updates, max(3, upper - 1), Loop())
    again.sink.allow_writes(WriterTerm(1))
    for inputs in (34, 38, 45):
        again.reach(inputs)

    assert handles.dead
    assert_refreshed(tmp_path / "shard", updates, 45, 3)


def test_an_edit_shows_at_once_while_the_old_revision_still_writes(tmp_path: Path) -> None:
    """Read-only it is as far as its inputs, as any view is; allowed, it writes at the upper, and then at refreshes."""
    old, new = history(3, 60), history(4, 60)
    first = Refreshed(tmp_path / "old", tmp_path / "shard", old, 3, Loop())
    first.sink.allow_writes(WriterTerm(1))
    first.reach(14)
    second = Refreshed(tmp_path / "new", tmp_path / "shard", new, 12, Loop())
    for inputs in (15, 16, 17):
        second.follow(inputs)
    assert second.frontier == 17
    second.sink.allow_writes(WriterTerm(2))
    first.reach(16)
    second.reach(18)
    first.loop.run_until(lambda: first.sink.term is None, lambda: first.follow(40))
    second.reach(40)

    assert [s.kind for s in first.loop.said if isinstance(s, Failure)] == [FailureKind.FENCED]
    for at in range(3, 40):
        refreshed = at - at % 10
        wanted = contents(old, max(3, refreshed)) if at < 16 else contents(new, max(16, refreshed))
        assert persisted(tmp_path / "shard", at) == wanted, f"at {at}"


def overwritten(tmp_path: Path, updates: list[Update], upper: int) -> Refreshed:
    """One that let go of what it had staged up to 14; then an edit wrote other contents, up to there."""
    first = Refreshed(tmp_path / "old", tmp_path / "shard", updates, 3, Loop())
    first.sink.allow_writes(WriterTerm(1))
    first.reach(14)
    edited = Refreshed(tmp_path / "edited", tmp_path / "shard", history(4, 60), 12, Loop())
    edited.sink.allow_writes(WriterTerm(2))
    edited.reach(upper)
    return first


def test_a_sink_overwritten_by_another_revision_writes_no_more(tmp_path: Path) -> None:
    """And says so: what the table holds is not known to it."""
    first = overwritten(tmp_path, history(3, 60), 18)
    first.sink.allow_writes(WriterTerm(3))
    first.loop.run_until(lambda: first.sink.term is None, lambda: first.follow(30))

    assert open_shard(str(tmp_path / "shard")).state().upper == 18
    (failed,) = [s for s in first.loop.said if isinstance(s, Failure)]
    assert (failed.kind, failed.stopped) == (FailureKind.SINK, True)


def test_one_that_missed_an_edit_and_its_revert_writes_no_more(tmp_path: Path) -> None:
    """The table is written under its own new term when it is told of that: by one that corrected it at a refresh which
    it does not know."""
    updates = history(3, 60)
    first = overwritten(tmp_path, updates, 15)
    again = Refreshed(tmp_path / "again", tmp_path / "shard", updates, 14, Loop())
    again.follow(16)
    again.sink.allow_writes(WriterTerm(3))
    again.reach(17)

    def seen() -> bool:
        shard = first.loop.watch.state(ShardId("v"))
        return shard is not None and shard.term == 3

    first.loop.run_until(seen, first.sink.advance)
    first.sink.allow_writes(WriterTerm(3))
    first.loop.run_until(lambda: first.sink.term is None, lambda: first.follow(24))
    again.reach(24)

    for at in range(17, 24):
        assert persisted(tmp_path / "shard", at) == contents(updates, 15 if at < 20 else 20), f"at {at}"


def test_one_that_is_to_go_on_under_another_term_where_no_other_wrote_goes_on(tmp_path: Path) -> None:
    """With a refresh, as a first write under a term is."""
    updates = history(3, 60)
    view = Refreshed(tmp_path / "one", tmp_path / "shard", updates, 3, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.reach(14)
    view.sink.allow_writes(WriterTerm(2))
    view.reach(24)

    assert view.sink.term == 2
    for at in range(14, 24):
        assert persisted(tmp_path / "shard", at) == contents(updates, 14 if at < 20 else 20), f"at {at}"


def test_the_last_of_some_times_seals_the_table(tmp_path: Path) -> None:
    """Nothing can change after it."""

    class AtTimes(Refreshed):
        refreshes = RefreshTimes(RefreshSchedule(at=(Time(9), Time(22))))

    updates = history(6, 40)
    view = AtTimes(tmp_path / "r1", tmp_path / "shard", updates, 3, Loop())
    view.sink.allow_writes(WriterTerm(1))
    for inputs in (5, 9, 12, 22):
        view.reach(inputs)
    view.loop.run_until(lambda: view.sink.write_frontier.is_empty, lambda: view.follow(30))

    assert open_shard(str(tmp_path / "shard")).state().upper == EMPTY_SENTINEL
    for at in range(3, 40):
        last = max(t for t in (3, 9, 22) if t <= at)
        assert persisted(tmp_path / "shard", at) == contents(updates, last), f"at {at}"
