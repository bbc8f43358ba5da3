"""The keyed queue: one worker per key, back-off per key, and no key that holds up another."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tests.waiting import BOUND
from tidemark_operator.handlers import work_queue
from tidemark_operator.handlers.work_queue import MAX_STALE, KeyedQueue, WorkQueue, backoff_seconds


def test_a_key_is_worked_on_by_one_worker_at_a_time() -> None:
    """Added meanwhile, it comes once more afterwards; not twice."""
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("a", 0)
    assert queue.take(0) == "a"

    queue.add("a", 0)
    queue.add("a", 0)
    assert queue.take(0) is None
    queue.finish("a", failed=False, now=1)

    assert queue.take(1) == "a"
    queue.finish("a", failed=False, now=1)
    assert queue.take(99) is None


def test_a_key_that_fails_comes_back_ever_more_rarely_and_delays_no_other() -> None:
    """Half a second, one, two; forgotten after a success."""
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("bad", 0)
    now = 0.0
    for failures in (1, 2, 3):
        assert queue.take(now) == "bad"
        queue.finish("bad", failed=True, now=now)
        queue.add("good", now)
        assert queue.take(now) == "good"
        queue.finish("good", failed=False, now=now)
        assert queue.next_due() == now + backoff_seconds(failures)
        now += backoff_seconds(failures)
    queue.take(now)
    queue.finish("bad", failed=False, now=now)
    queue.add("bad", now)
    queue.take(now)
    queue.finish("bad", failed=True, now=now)

    assert queue.next_due() == now + backoff_seconds(1)


def test_the_back_off_has_an_end() -> None:
    """A minute, however often it failed."""
    assert [backoff_seconds(n) for n in (1, 2, 3, 8, 10_000)] == [0.5, 1.0, 2.0, 60.0, 60.0]


def test_the_earlier_of_two_times_counts() -> None:
    """A look that is due later does not put off one that is due now."""
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("a", 10)
    queue.add("a", 0)
    queue.add("a", 20)

    assert queue.take(0) == "a"
    assert len(queue) == 1


def test_the_longest_waiting_key_is_next() -> None:
    """First come, first served, among those that are ready."""
    queue: KeyedQueue[str] = KeyedQueue()
    for key, due in (("late", 3), ("early", 1), ("future", 9)):
        queue.add(key, due)

    assert [queue.take(5), queue.take(5), queue.take(5)] == ["early", "late", None]


def test_must_repeated_delays_take_no_more_memory() -> None:
    """A look that is due much later is passed over by one that is due now, each time."""
    queue: KeyedQueue[str] = KeyedQueue()
    for now in range(1_000):
        queue.add("a", 1e9 + now)
        queue.add("a", now)
        assert queue.take(now) == "a"
        queue.finish("a", failed=False, now=now)
        assert len(queue._heap) <= MAX_STALE + 2


@pytest.mark.parametrize("seed", range(5))
def test_agree_a_queue_that_is_swept_all_the_time_gives_the_same_keys(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """In the same order, at the same times."""

    def taken(stale: int) -> list[tuple[str | None, float | None]]:
        monkeypatch.setattr(work_queue, "MAX_STALE", stale)
        queue: KeyedQueue[str] = KeyedQueue()
        given, busy, found = random.Random(seed), list[str](), list[tuple[str | None, float | None]]()
        for turn in range(500):
            now = turn + given.random()  # no two are due at the same time: which of these is first is not said
            for _ in range(given.randrange(4)):
                queue.add(given.choice("abcdef"), now + given.choice([0, 1, 5, 50]) * given.random())
            key = queue.take(now)
            busy += [key] if key else []
            if busy and given.random() < 0.7:
                queue.finish(busy.pop(given.randrange(len(busy))), failed=given.random() < 0.2, now=now)
            found.append((key, queue.next_due()))
        return found

    assert taken(-1_000) == taken(10**9)


def test_the_queue_runs_added_work_also_after_a_failure() -> None:
    """With real workers: every key is worked on, and the one that failed once is worked on again."""
    seen: Counter[str] = Counter()

    async def scenario() -> None:
        done = asyncio.Event()

        async def work(key: str) -> None:
            seen[key] += 1
            if key == "flaky" and seen[key] == 1:
                raise RuntimeError("once")
            if seen["flaky"] == 2 and len(seen) == 11:
                done.set()

        queue = WorkQueue(work, workers=3)
        running = asyncio.create_task(queue.run())
        queue.add("flaky")
        queue.add_all(map(str, range(10)))
        await asyncio.wait_for(done.wait(), BOUND)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())

    assert seen["flaky"] == 2


def test_an_urgent_key_comes_before_all_ready_ones() -> None:
    """Also where it was to come later itself; once."""
    seen: list[str] = []

    async def scenario() -> None:
        done = asyncio.Event()

        async def work(key: str) -> None:
            seen.append(key)
            if key == "last":
                done.set()

        queue = WorkQueue(work, workers=1)
        queue.add_all(["a", "b", "last"])
        queue.add("c", after_seconds=BOUND)
        queue.add_first("b")
        queue.add_first("c")
        running = asyncio.create_task(queue.run())
        await asyncio.wait_for(done.wait(), BOUND)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())

    assert seen == ["b", "c", "a", "last"]
