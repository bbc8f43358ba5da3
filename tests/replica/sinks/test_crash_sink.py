"""The materialized-view sink against real shards: competing, cut off, cut short at every commit point.

After every history the shard must hold, at each readable time, exactly what the view held: no gap, no duplicate.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.replica.worker_loop import Loop
from tidemark_persist import CommitForgotten, Shard, open_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import Failure, FailureKind
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.sinks.table import materialized_view
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink

Update = tuple[int | None, str | None, int, int, str | None]
SCHEMA = pa.schema(
    [("c0", pa.int64()), ("c1", pa.string()), ("__time", pa.int64()), ("__diff", pa.int64()), ("__error", pa.string())]
)
VIEW = GlobalId("view")


def history(seed: int, until: int) -> list[Update]:
    """Rows that come, change and go; sometimes an error; several updates per time."""
    rng, alive, updates = random.Random(seed), Counter[tuple[int | None, str | None, str | None]](), list[Update]()
    for time in range(until):
        for _ in range(rng.randrange(3)):
            if alive and rng.random() < 0.4:
                row = rng.choice(sorted(alive, key=repr))
                alive -= Counter([row])
                updates.append((row[0], row[1], time, -1, row[2]))
            else:
                error = rng.random() < 0.1
                row = (None, None, "E") if error else (rng.randrange(4), rng.choice(["a", None]), None)
                alive[row] += 1
                updates.append((row[0], row[1], time, 1, row[2]))
    return updates


def contents(updates: Iterable[Update], at: int) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for a, b, time, diff, error in updates:
        if time <= at:
            found[a, b, error] += diff
    return +found


def persisted(location: Path | str, at: int) -> Counter[tuple[Any, ...]]:
    table = open_shard(str(location)).snapshot(at)
    return Counter({(r["n"], r["s"], r["__error"]): r["__diff"] for r in table.to_pylist()})


class View:
    """One replica's sink over a history, stepped by the test."""

    def __init__(self, folder: Path, location: Path | str, updates: list[Update], as_of: int, loop: Loop) -> None:
        self.folder, self.updates, self.frontier, self.as_of, self.loop = folder, updates, as_of, as_of, loop
        folder.mkdir(exist_ok=True)
        shard = ShardMetadata(ShardId("v"), str(location), (Column("n", BIGINT), Column("s", STRING)))
        self.sink = self.made(shard)

    def made(self, shard: ShardMetadata) -> MaterializedViewSink:
        at, loop = Frontier.at(self.as_of), self.loop
        return MaterializedViewSink(VIEW, shard, at, loop.handles, loop.watch, loop.jobs, loop.said.append)

    def step(self, upper: int) -> None:
        first = self.frontier == self.as_of
        rows = [u for u in self.updates if (first or u[2] >= self.frontier) and u[2] < upper]
        rows = [(a, b, max(t, self.as_of), d, e) for a, b, t, d, e in rows]
        path = self.folder / f"{self.frontier}.arrow"
        batch = pa.RecordBatch.from_arrays(
            [pa.array([r[i] for r in rows], SCHEMA.types[i]) for i in range(len(SCHEMA))], schema=SCHEMA
        )
        with pa.ipc.new_file(str(path), SCHEMA) as file:
            file.write_batch(batch)
        delta = SinkDelta(VIEW, Time(self.frontier), Time(upper), SCHEMA, (path,), len(rows))
        self.sink.stage(Staged(self.frontier, upper, delta, lambda: path.unlink(missing_ok=True)))
        self.frontier = upper

    def write_until(self, upper: int) -> None:
        self.loop.run_until(lambda: self.sink.write_frontier >= Frontier.at(upper), self.sink.advance)


def assert_exact(location: Path, updates: list[Update], upper: int) -> None:
    state = open_shard(str(location)).state()
    assert state.upper == upper
    for at in range(state.since, upper):
        assert persisted(location, at) == contents(updates, at), f"at {at}"


@pytest.mark.parametrize("seed", range(3))
def test_split_any_steps_leave_the_same_shard(tmp_path: Path, seed: int) -> None:
    """However the history is cut into steps, every time of it is in the shard, and the step files are gone."""
    updates, rng = history(seed, 30), random.Random(seed)
    bounds = [4, *sorted(rng.sample(range(5, 30), 4)), 30]
    view = View(tmp_path / "r1", tmp_path / "shard", updates, 4, Loop())
    view.sink.allow_writes(WriterTerm(1))
    for upper in bounds[1:]:
        view.step(upper)
        view.write_until(upper)

    assert_exact(tmp_path / "shard", updates, 30)
    assert open_shard(str(tmp_path / "shard")).state().since == 4
    assert list((tmp_path / "r1").iterdir()) == []


def test_nothing_is_written_before_writes_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read-only: the frontier moves, the shard does not even exist; then all of it is written at once.

    The waiting updates are bounded: a sink that is full says so, and its dataflow makes no further step until it has
    written.
    """
    updates = history(7, 20)
    monkeypatch.setattr(materialized_view, "WAITING_ROWS", sum(u[2] < 20 for u in updates))
    view = View(tmp_path / "r1", tmp_path / "shard", updates, 2, Loop())
    view.step(10)
    view.loop.run_until(lambda: view.loop.watch.state(ShardId("v")), view.sink.advance)
    assert not view.sink.is_full
    view.step(20)
    view.sink.advance()
    assert view.sink.is_full
    assert not (tmp_path / "shard").exists()
    view.sink.allow_writes(WriterTerm(1))
    view.write_until(20)
    assert not view.sink.is_full

    assert_exact(tmp_path / "shard", updates, 20)


@pytest.mark.parametrize("seed", range(3))
def test_crash_a_restarted_replica_goes_on_without_gap_or_duplicate(tmp_path: Path, seed: int) -> None:
    """A replica that ends with steps not yet written is followed by one that begins again below the upper."""
    updates, rng = history(seed, 40), random.Random(seed)
    first = View(tmp_path / "r1", tmp_path / "shard", updates, 3, Loop())
    first.sink.allow_writes(WriterTerm(1))
    first.step(12)
    first.write_until(12)
    first.step(20)  # staged, never written
    second = View(tmp_path / "r2", tmp_path / "shard", updates, rng.randrange(3, 12), Loop())
    second.sink.allow_writes(WriterTerm(1))
    for upper in (14, 25, 40):
        second.step(upper)
        second.write_until(upper)

    assert_exact(tmp_path / "shard", updates, 40)


def test_crash_a_shard_that_went_wrong_is_corrected(tmp_path: Path) -> None:
    """A wrong write of another program is undone at the upper: from there on the shard equals the view."""
    updates, wrong = history(1, 30), history(2, 10)
    bad = View(tmp_path / "bad", tmp_path / "shard", wrong, 0, Loop())
    bad.sink.allow_writes(WriterTerm(1))
    bad.step(10)
    bad.write_until(10)
    good = View(tmp_path / "good", tmp_path / "shard", updates, 9, Loop())
    good.sink.allow_writes(WriterTerm(1))
    good.step(30)
    good.write_until(30)

    for at in range(10, 30):
        assert persisted(tmp_path / "shard", at) == contents(updates, at)


@pytest.mark.parametrize("seed", range(3))
def test_competing_replicas_write_every_time_once(tmp_path: Path, seed: int) -> None:
    """Two replicas of one term, stepping at their own pace: whoever is faster writes, the other skips."""
    updates, rng, loop = history(seed, 60), random.Random(seed), Loop()
    views = [View(tmp_path / f"r{i}", tmp_path / "shard", updates, as_of, loop) for i, as_of in enumerate((0, 2))]
    for view in views:
        view.sink.allow_writes(WriterTerm(1))
    while any(v.frontier < 60 for v in views):
        view = rng.choice([v for v in views if v.frontier < 60])
        view.step(min(60, view.frontier + rng.randrange(1, 9)))
        for v in views:
            v.sink.advance()
    everyone = [v.sink for v in views]
    loop.run_until(lambda: everyone[0].write_frontier >= Frontier.at(60), lambda: [s.advance() for s in everyone])

    assert_exact(tmp_path / "shard", updates, 60)


def test_a_replica_that_never_wins_lets_go_of_its_files(tmp_path: Path) -> None:
    """Beside one that is always first: it compares once, then keeps nothing that is written already."""
    updates = history(4, 30)
    writer = View(tmp_path / "w", tmp_path / "shard", updates, 0, Loop())
    writer.sink.allow_writes(WriterTerm(1))
    reader = View(tmp_path / "r", tmp_path / "shard", updates, 2, Loop())
    reader.sink.allow_writes(WriterTerm(1))
    for upper in (10, 20, 30):
        writer.step(upper)
        writer.write_until(upper)
        reader.step(upper)
    reader.loop.run_until(lambda: not list((tmp_path / "r").iterdir()), reader.sink.advance)

    assert_exact(tmp_path / "shard", updates, 30)


def test_an_older_term_is_fenced_and_says_so(tmp_path: Path) -> None:
    """After a newer term has written, the older sink stops for good and changes nothing."""
    updates, loop = history(3, 30), Loop()
    old = View(tmp_path / "old", tmp_path / "shard", updates, 0, loop)
    new = View(tmp_path / "new", tmp_path / "shard", updates, 0, Loop())
    old.sink.allow_writes(WriterTerm(1))
    new.sink.allow_writes(WriterTerm(2))
    new.step(10)
    new.write_until(10)
    old.step(20)
    loop.run_until(
        lambda: any(isinstance(s, Failure) and s.kind == FailureKind.FENCED for s in loop.said), old.sink.advance
    )

    assert_exact(tmp_path / "shard", updates, 10)


class CutShort(ShardHandles):
    """Appends fail in turn: before they land, after they landed, not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def writer(self, shard: ShardMetadata) -> Shard:
        real = super().writer(shard)
        outer = self

        class Cut:
            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def compare_and_append(self, *arguments: Any, **named: Any) -> Any:
                outer.count += 1
                if outer.count % 3 == 1:
                    raise OSError("the connection was lost before the commit")
                result = real.compare_and_append(*arguments, **named)
                if outer.count % 3 == 2:
                    raise OSError("the reply was lost")
                return result

        return Cut()  # type: ignore[return-value]


def test_crash_lost_replies_are_retried_under_the_same_commit_id(tmp_path: Path) -> None:
    """Whether an append landed or not, the retry ends with exactly one."""
    updates = history(5, 24)
    view = View(tmp_path / "r1", tmp_path / "shard", updates, 0, Loop(CutShort()))
    view.sink.allow_writes(WriterTerm(1))
    for upper in (6, 12, 24):
        view.step(upper)
        view.write_until(upper)

    assert_exact(tmp_path / "shard", updates, 24)


def test_crash_an_append_that_came_too_late_is_given_up(tmp_path: Path) -> None:
    """The shard moved on, and what it would be compared with is compacted: the sink goes on from where the shard is."""
    updates = history(6, 40)
    fast = View(tmp_path / "fast", tmp_path / "shard", updates, 0, Loop())
    late = View(tmp_path / "late", tmp_path / "shard", updates, 2, Loop())
    fast.sink.allow_writes(WriterTerm(1))
    late.sink.allow_writes(WriterTerm(1))
    fast.step(10)
    fast.write_until(10)
    late.loop.run_until(lambda: late.sink.write_frontier == Frontier.at(10), late.sink.advance)
    fast.step(30)
    fast.write_until(30)
    fast.loop.handles.existing_writer(str(tmp_path / "shard"), ShardId("v")).downgrade_since(29)
    late.step(15)
    late.sink.advance()  # expects the upper to be 10 still
    late.step(40)
    late.write_until(40)

    assert_exact(tmp_path / "shard", updates, 40)


class Forgetful(ShardHandles):
    """The log was cleaned before the reply of an append was known."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: str | None = None

    def writer(self, shard: ShardMetadata) -> Shard:
        real = super().writer(shard)
        outer = self

        class Cleaned:
            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def compare_and_append(self, *arguments: Any, **named: Any) -> Any:
                result = real.compare_and_append(*arguments, **named)
                outer.forgotten = outer.forgotten or named["commit_id"]
                if named["commit_id"] == outer.forgotten:
                    raise CommitForgotten("nobody knows whose commit it was")
                return result

        return Cleaned()  # type: ignore[return-value]


def test_crash_an_append_of_unknown_outcome_is_compared_with_the_table(tmp_path: Path) -> None:
    """When even the log has forgotten, the sink begins from the shard as it is."""
    updates = history(8, 24)
    view = View(tmp_path / "r1", tmp_path / "shard", updates, 0, Loop(Forgetful()))
    view.sink.allow_writes(WriterTerm(1))
    for upper in (6, 24):
        view.step(upper)
        view.write_until(upper)

    assert_exact(tmp_path / "shard", updates, 24)


def test_steps_meet_without_gap(tmp_path: Path) -> None:
    """A step that does not begin where the one before ended is a bug that must not reach the shard."""
    view = View(tmp_path / "r1", tmp_path / "shard", [], 0, Loop())
    for lower, upper in pairwise((0, 5)):
        view.sink.stage(Staged(lower, upper, None))
    with pytest.raises(AssertionError, match="expected from 5"):
        view.sink.stage(Staged(6, 7, None))
