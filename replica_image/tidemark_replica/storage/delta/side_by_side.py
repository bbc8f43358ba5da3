"""Does work on the items of several iterators, on threads: each takes an iterator to its end, and then another one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from queue import Queue
from threading import Event, Lock
from typing import TypeVar

THREADS = 2

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True)
class _End:
    """A thread has ended. `error`: why it did so before its parts did."""

    error: BaseException | None = None


def side_by_side(work: Callable[[Item], Found | None], parts: Iterable[Generator[Item, None, None]]) -> Iterator[Found]:
    """Yield the results of `work` for the items of all parts, in order for each part; None is no result. THREADS
    results wait to be taken, at most. Raises what a part or `work` raises."""
    found: Queue[Found | _End] = Queue(THREADS)
    halt, lock, waiting = Event(), Lock(), iter(parts)

    def next_part() -> Generator[Item, None, None] | None:
        with lock:
            return None if halt.is_set() else next(waiting, None)

    def work_on() -> None:
        end = _End()
        try:
            while (part := next_part()) is not None:
                with closing(part):
                    for item in part:
                        if (result := work(item)) is not None:
                            found.put(result)
                        if halt.is_set():
                            break
        except BaseException as error:  # the caller's, not of this thread
            halt.set()
            end = _End(error)
        found.put(end)

    with ThreadPoolExecutor(THREADS, "read") as pool:
        for _ in range(THREADS):
            pool.submit(work_on)
        running, error = THREADS, None
        try:
            while running:
                result = found.get()
                if not isinstance(result, _End):
                    yield result
                    continue
                running -= 1
                error = error or result.error
        finally:  # a caller that takes no more: what waits is taken, so that the threads come to their ends
            halt.set()
            while running:
                running -= isinstance(found.get(), _End)
        if error is not None:
            raise error
