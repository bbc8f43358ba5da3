"""The subscribe sink against steps made by hand: batches that it must send, and those that it must not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.replica.plans import COLUMNS
from tests.replica.sinks.deltas import Update, staged
from tests.replica.worker_loop import Loop
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.responses import SubscribeBatch, SubscribeDropped, SubscribeResponse
from tidemark_protocol.plan.dataflow import SubscribeSink as SubscribeExport
from tidemark_replica.events.jobs import Outcome
from tidemark_replica.sinks.subscribe import subscribe_batches as batches_module
from tidemark_replica.sinks.subscribe.subscribe import SubscribeSink
from tidemark_replica.sinks.subscribe.subscribe_batches import UpdatePosition, batches, shares_of

ID, AS_OF = GlobalId("s"), 10
FAILS = '{"code":"EXPRESSION_FAILED","expression":"1 / n"}'
SNAPSHOT: list[Update] = [((1, "a"), 10, 1), ((2, "b"), 10, 2), ((1, "a"), 10, -1), ((3, None), 12, 1)]


class Scene:
    """A sink, its client, and pools whose work is done."""

    def __init__(self, folder: Path, **export: object) -> None:
        self.folder, self.loop, self.room = folder, Loop(), True
        self.released = 0
        self.sink = SubscribeSink(
            ID,
            SubscribeExport(COLUMNS, **export),  # type: ignore[arg-type]
            Frontier.at(AS_OF),
            self.loop.jobs,
            self.loop.said.append,
            lambda: self.room,
            lambda: None,
        )

    def stage(self, lower: int, upper: int, updates: list[Update] | None = None) -> None:
        self.sink.stage(staged(self.folder, COLUMNS, lower, upper, updates or [], self._release))

    def tell(self, upper: int) -> list[SubscribeBatch]:
        """All batches, once the last of them goes up to there."""
        self.loop.run_until(lambda: self.sink.write_frontier.encode() >= upper, self.sink.advance)
        return self.batches

    @property
    def batches(self) -> list[SubscribeBatch]:
        results = [r.result for r in self.loop.said if isinstance(r, SubscribeResponse)]
        return [r for r in results if isinstance(r, SubscribeBatch)]

    def _release(self) -> None:
        self.released += 1


def updates_of(batch: SubscribeBatch) -> list[tuple[object, ...]]:
    """Rows, time and diff."""
    table = rows_of(batch)
    return [] if table is None else [tuple(r[n] for n in table.column_names[:-1]) for r in table.to_pylist()]


def rows_of(batch: SubscribeBatch) -> pa.Table | None:
    return pa.ipc.open_stream(batch.updates).read_all() if batch.updates else None


def check_promises(told: list[SubscribeBatch], ends_at: int) -> None:
    """From the minimum on, contiguous, non-empty, each update inside its batch, at most one per row and time."""
    reached = (Frontier.minimum(), 0)
    seen: Counter[tuple[object, ...]] = Counter()
    for batch in told:
        lower, upper = (batch.lower, batch.lower_part), (batch.upper, batch.upper_part)
        assert lower == reached < upper
        reached = upper
        if (table := rows_of(batch)) is not None:
            places = list(zip(table["__time"].to_pylist(), table["__part"].to_pylist(), strict=True))
            assert places == sorted(places)
            assert all((lower[0].encode(), lower[1]) <= p < (upper[0].encode(), upper[1]) for p in places)
            assert 0 not in table["__diff"].to_pylist()
            seen.update((*(r[n] for n in table.column_names[:-3]), r["__time"]) for r in table.to_pylist())
    assert reached == (Frontier.decode(ends_at), 0)
    assert not seen or max(seen.values()) == 1


def test_must_cover_all_times_from_the_minimum_on_with_consolidated_batches(tmp_path: Path) -> None:
    """The snapshot at the as_of, then changes at their times; what cancels out is not there; nothing is too early."""
    scene = Scene(tmp_path)
    scene.stage(10, 13, SNAPSHOT)
    scene.stage(13, 20)
    scene.stage(20, 30, [((2, "b"), 25, -2)])
    batches = scene.tell(30)

    check_promises(batches, 30)
    assert [u for b in batches for u in updates_of(b)] == [(2, "b", 10, 2), (3, None, 12, 1), (2, "b", 25, -2)]
    assert batches[0].upper >= Frontier.at(AS_OF)
    assert scene.released == 3


def test_must_begin_without_the_snapshot_where_that_is_asked(tmp_path: Path) -> None:
    """The times are covered all the same."""
    scene = Scene(tmp_path, with_snapshot=False)
    scene.stage(10, 13, SNAPSHOT)
    batches = scene.tell(13)

    check_promises(batches, 13)
    assert [u for b in batches for u in updates_of(b)] == [(3, None, 12, 1)]


@pytest.mark.parametrize("upper", [12, 15])
def test_must_end_at_up_to_with_the_empty_frontier(tmp_path: Path, upper: int) -> None:
    """Updates at or beyond it are not told, nothing more is read, and a drop says nothing after that."""
    scene = Scene(tmp_path, up_to=Time(12))
    scene.stage(10, upper, SNAPSHOT if upper > 12 else SNAPSHOT[:3])
    batches = scene.tell(EMPTY_SENTINEL)

    check_promises(batches, EMPTY_SENTINEL)
    assert [u for b in batches for u in updates_of(b)] == [(2, "b", 10, 2)]
    assert scene.sink.is_full
    assert scene.sink.drop() is None


def test_must_end_with_the_inputs(tmp_path: Path) -> None:
    """Constants: one step up to the empty frontier."""
    scene = Scene(tmp_path)
    scene.stage(10, EMPTY_SENTINEL, SNAPSHOT[:2])

    check_promises(scene.tell(EMPTY_SENTINEL), EMPTY_SENTINEL)
    assert scene.sink.drop() is None


@pytest.mark.parametrize(
    ("updates", "before"),
    [
        ([*SNAPSHOT, (FAILS, 10, 1)], 10),
        ([*SNAPSHOT, (FAILS, 12, 1)], 12),
        ([*SNAPSHOT, (FAILS, 11, 1), (FAILS, 12, -1)], 11),
    ],
    ids=["in the snapshot", "with a change", "taken back later"],
)
def test_must_tell_errors_first_and_nothing_after_them(tmp_path: Path, updates: list[Update], before: int) -> None:
    """The changes before the error's time are sent; at its time and later nothing is known."""
    scene = Scene(tmp_path)
    scene.stage(10, 13, updates)
    scene.stage(13, 20, [((7, "x"), 14, 1)])
    batches = scene.tell(EMPTY_SENTINEL)

    check_promises(batches, EMPTY_SENTINEL)
    assert (batches[-1].lower, batches[-1].error) == (
        Frontier.at(before),
        "the subscribe is in error: EXPRESSION_FAILED in 1 / n",
    )
    assert [u for b in batches for u in updates_of(b)] == ([(2, "b", 10, 2)] if before > 10 else [])
    assert scene.sink.drop() is None
    assert scene.released == 2


def test_an_error_that_cancels_out_at_its_time_is_none(tmp_path: Path) -> None:
    """Two operators may give and take the same error."""
    scene = Scene(tmp_path)
    scene.stage(10, 13, [*SNAPSHOT, (FAILS, 12, 1), (FAILS, 12, -1)])

    assert [b.error for b in scene.tell(13)] == [None]


def test_must_say_dropped_at_the_upper_of_the_last_batch(tmp_path: Path) -> None:
    """Also before the first one; and then nothing more, whatever was under way."""
    scene = Scene(tmp_path)
    assert scene.sink.drop() == SubscribeResponse(ID, SubscribeDropped(Frontier.minimum()))

    scene = Scene(tmp_path)
    scene.stage(10, 13, SNAPSHOT)
    scene.tell(13)
    scene.stage(13, 20, [((7, "x"), 14, 1)])
    scene.sink.advance()
    assert scene.sink.drop() == SubscribeResponse(ID, SubscribeDropped(Frontier.at(13)))
    ends: list[Outcome[None]] = []
    scene.loop.jobs.submit("what was under way", lambda: None, ends.append)
    scene.loop.jobs.submit("and beside it", lambda: None, ends.append)
    scene.loop.run_until(lambda: len(ends) == 2, scene.sink.advance)
    assert len(scene.batches) == 1


def test_a_client_without_room_waits_and_so_do_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiting batches are on disk, and past a bound no more are made."""
    monkeypatch.setattr("tidemark_replica.sinks.subscribe.subscribe.WAITING_ROWS", 4)
    scene = Scene(tmp_path)
    scene.room = False
    scene.stage(10, 13, SNAPSHOT)
    scene.sink.advance()
    assert scene.sink.is_full
    assert scene.batches == []
    scene.room = True

    check_promises(scene.tell(13), 13)
    assert not scene.sink.is_full


def test_a_batch_that_no_message_holds_ends_the_subscribe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one time with one hash cannot be divided."""
    monkeypatch.setattr(batches_module, "MAX_MESSAGE_BYTES", batches_module.BATCH_BYTES + 10)
    scene = Scene(tmp_path)
    scene.stage(10, 13, SNAPSHOT)
    batches = scene.tell(EMPTY_SENTINEL)

    check_promises(batches, EMPTY_SENTINEL)
    assert "more than a message holds" in str(batches[-1].error)


@pytest.mark.parametrize("seed", range(6))
def test_split_large_steps_are_the_same_in_many_batches(tmp_path: Path, seed: int) -> None:
    """Whatever a batch may take, the updates in their order are those of one large batch."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 4000))
    times = random.choice([10, 10, 10, 11, 14, 40, 41, 90], count)
    updates: list[Update] = [
        ((int(n), None if n % 7 == 0 else f"r{n}"), int(t), int(d))
        for n, t, d in zip(random.integers(0, 900, count), times, random.choice([-1, 1, 2], count), strict=True)
    ]
    delta = staged(tmp_path, COLUMNS, 10, 100, updates, batch_rows=300).delta
    assert delta is not None

    def told(size: int) -> list[SubscribeBatch]:
        found = list(batches(delta, UpdatePosition(0), UpdatePosition(100), range(10, 100), size))
        check_promises(found, 100)
        return found

    (whole,) = told(1 << 30)
    for size in (500, 5_000, 40_000):
        assert [u for b in told(size) for u in updates_of(b)] == updates_of(whole)
    assert len(told(500)) > min(5, count // 400)
    assert list(tmp_path.glob("tidemark-shares-*")) == []


@pytest.mark.parametrize(
    ("counts", "rows", "ends"),
    [
        ([], 10, []),
        ([3], 10, [(11, 0)]),
        ([3, 3, 3, 3], 6, [(12, 0), (14, 0)]),
        ([3, 20, 3], 10, [(11, 0), (11, 1 << 63), (12, 0), (13, 0)]),
        ([30, 30], 10, [(10, 0x55555556 << 32), (10, 0xAAAAAAAB << 32), (11, 0), (11, 0x55555556 << 32)]),
    ],
)
def test_shares_end_between_times_or_within_a_large_one(
    counts: list[int], rows: int, ends: list[tuple[int, int]]
) -> None:
    """Small times together, a large one divided by the hash of its rows."""
    times = np.arange(10, 10 + len(counts), dtype=np.int64)
    shares = shares_of(times, np.array(counts, np.int64), rows)

    assert [(e.time, e.part) for e in shares.ends][: len(ends)] == ends


def test_the_job_of_a_batch_that_fails_is_told(tmp_path: Path) -> None:
    """Files that are gone: the client hears why, and the subscribe is over."""
    scene = Scene(tmp_path)
    scene.stage(10, 13, SNAPSHOT)
    for file in tmp_path.glob("*.arrow"):
        file.unlink()
    batches = scene.tell(EMPTY_SENTINEL)

    check_promises(batches, EMPTY_SENTINEL)
    assert "the subscribe failed" in str(batches[-1].error)
