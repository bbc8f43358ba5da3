"""The merge queue: few threads, first come first served, and a withdrawn merge never begins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from tests.waiting import BOUND, until
from tidemark_replica.render.execution.merge_queue import MergeQueue


class Works:
    """What has begun, in order; each ends once it `may`."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.may = threading.Event()

    def work(self, number: int) -> None:
        self.begun.append(number)
        assert self.may.wait(BOUND)


def merging() -> int:
    """Threads of queues."""
    return [thread.name for thread in threading.enumerate()].count("merges")


@pytest.fixture
def works() -> Iterator[Works]:
    made = Works()
    yield made
    made.may.set()


@pytest.mark.parametrize("threads", [1, 2])
def test_so_many_at_a_time_and_each_in_its_turn(works: Works, threads: int) -> None:
    """A hundred merges that are due take no more threads than there are to be."""
    until(lambda: not merging())  # of other tests
    queue = MergeQueue(threads)
    turns = [queue.submit(partial(works.work, number)) for number in range(100)]
    until(lambda: len(works.begun) == threads)
    assert merging() == threads
    assert not any(turn.is_over for turn in turns)
    works.may.set()
    assert all(turn.wait(BOUND) for turn in turns)
    assert sorted(works.begun) == list(range(100))
    assert threads > 1 or works.begun == list(range(100))
    until(lambda: not merging())
    assert queue.submit(partial(works.work, 100)).wait(BOUND)


def test_a_withdrawn_merge_never_begins(works: Works) -> None:
    """Of one that has begun nothing changes."""
    queue = MergeQueue(1)
    turns = [queue.submit(partial(works.work, number)) for number in range(3)]
    until(lambda: works.begun)
    queue.withdraw(turns[0])
    queue.withdraw(turns[1])
    assert [turn.is_over for turn in turns] == [False, True, False]
    works.may.set()
    assert turns[2].wait(BOUND)
    assert works.begun == [0, 2]


def test_an_end_waits_for_nothing(works: Works) -> None:
    """What waits is over at once, what comes later too, and what is under way is left alone."""
    queue = MergeQueue(1)
    turns = [queue.submit(partial(works.work, number)) for number in range(3)]
    until(lambda: works.begun)
    queue.close()
    assert queue.submit(partial(works.work, 3)).is_over
    assert [turn.is_over for turn in turns] == [False, True, True]
    works.may.set()
    assert turns[0].wait(BOUND)
    assert works.begun == [0]


def test_one_that_fails_is_over_and_the_next_one_begins(works: Works) -> None:
    """Its thread is the next one's too."""
    queue = MergeQueue(1)
    failing, next_one = queue.submit(_fails), queue.submit(partial(works.work, 1))
    works.may.set()
    assert failing.wait(BOUND)
    assert next_one.wait(BOUND)
    assert works.begun == [1]


def test_where_no_thread_can_be_started_it_is_over_at_once(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked tries again later; what waits for a thread that runs goes on waiting."""
    queue = MergeQueue(2)
    works.may.set()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refused)
        assert queue.submit(partial(works.work, 0)).is_over
    works.may.clear()
    first = queue.submit(partial(works.work, 1))
    until(lambda: works.begun)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refused)
        second = queue.submit(partial(works.work, 2))
    assert not second.is_over
    works.may.set()
    assert first.wait(BOUND)
    assert second.wait(BOUND)
    assert works.begun == [1, 2]


def _fails() -> None:
    raise ValueError("a merge that fails")


def _refused(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
