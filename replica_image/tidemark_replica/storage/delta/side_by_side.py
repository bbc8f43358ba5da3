"""Takes the items of several iterators, which run on threads, each one item ahead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

THREADS = 2

Item = TypeVar("Item")
Found = TypeVar("Found")


def side_by_side(work: Callable[[Item], Found], parts: Iterable[Generator[Item, None, None]]) -> Iterator[Found]:
    """Yield the results of `work` for the items of all parts, in order for each part. Raises what a part raises."""
    waiting = iter(parts)
    running: dict[Future[list[Found]], Generator[Item, None, None]] = {}
    with ThreadPoolExecutor(THREADS, "read") as pool:

        def go_on(part: Generator[Item, None, None]) -> None:
            running[pool.submit(_next, work, part)] = part

        try:
            while True:
                while len(running) < THREADS and (part := next(waiting, None)) is not None:
                    go_on(part)
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    found = future.result()
                    part = running.pop(future)
                    if found:
                        go_on(part)
                        yield found[0]
        finally:  # a generator cannot be closed while it runs
            wait(running)
            for part in running.values():
                part.close()


def _next(work: Callable[[Item], Found], part: Generator[Item, None, None]) -> list[Found]:
    """The result of `work` for the part's next item; none at its end."""
    for item in part:
        return [work(item)]
    return []
