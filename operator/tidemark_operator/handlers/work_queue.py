"""A work queue of keys. At most one worker works on a key at a time; a failure is retried with growing pauses.

    add(k)            k is ready; if it is added while a worker has it, it is ready again afterwards
    take(now)         a ready key
    finish(k, failed)   after a failure k is ready again in 0.5, 1, 2 ... 60 s

The queue is bounded by the number of keys. `KeyedQueue` is pure, with time as an argument in seconds; `WorkQueue` runs
it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from tidemark_operator.errors import OperatorError

LOG = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 60.0
MAX_STALE = 64
"""Entries that the heap may have beyond twice the number of keys that are due."""


class KeyedQueue(Generic[K]):
    """`_due` has the truth. `_heap` has it too, and also stale entries: they are skipped, and removed when they are
    many."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._busy: set[K] = set()
        self._failures: dict[K, int] = {}

    def add(self, key: K, due: float) -> None:
        """The key is ready at `due`, or earlier if it was due earlier already."""
        if due < self._due.get(key, math.inf):
            self._put(key, due)

    def take(self, now: float) -> K | None:
        """The key that has been ready for longest, or None. It is busy until `done`."""
        due = self.next_due()
        if due is None or due > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._due[key]
        self._busy.add(key)
        return key

    def next_due(self) -> float | None:
        """The time when the next key becomes ready; None if time alone makes none ready."""
        while self._heap:
            due, _, key = self._heap[0]
            if key not in self._busy and self._due.get(key) == due:
                return due
            heapq.heappop(self._heap)
        return None

    def finish(self, key: K, failed: bool, now: float) -> None:
        self._busy.discard(key)
        if not failed:
            self._failures.pop(key, None)
            if (due := self._due.get(key)) is not None:
                self._put(key, due)
            return
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        # a key that was added meanwhile waits too: the addition may be what caused the failure
        self._put(key, now + backoff_seconds(failures))

    def _put(self, key: K, due: float) -> None:
        self._due[key] = due
        if key not in self._busy:  # otherwise `finish` pushes it
            heapq.heappush(self._heap, (due, next(self._order), key))
            if len(self._heap) > 2 * len(self._due) + MAX_STALE:
                self._sweep()

    def _sweep(self) -> None:
        """Removes stale entries, and second entries of a key for the same time."""
        seen: set[K] = set()
        valid = []
        for entry in sorted(self._heap):
            due, _, key = entry
            if key not in self._busy and key not in seen and self._due.get(key) == due:
                seen.add(key)
                valid.append(entry)
        self._heap = valid  # sorted, so a heap

    def __len__(self) -> int:
        return len(self._due) + len(self._busy)


def backoff_seconds(failures: int) -> float:
    return float(min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 20)))


class WorkQueue(Generic[K]):
    def __init__(self, work: Callable[[K], Awaitable[None]], workers: int = 4) -> None:
        self._work, self._workers = work, workers
        self._queue: KeyedQueue[K] = KeyedQueue()
        self._changed = asyncio.Event()

    def add(self, key: K, after_seconds: float = 0.0) -> None:
        self._queue.add(key, asyncio.get_running_loop().time() + after_seconds)
        self._changed.set()

    def add_first(self, key: K) -> None:
        """The key is ready now, before all others."""
        self._queue.add(key, -math.inf)
        self._changed.set()

    def add_all(self, keys: Iterable[K]) -> None:
        """The keys are ready now."""
        now = asyncio.get_running_loop().time()
        for key in keys:
            self._queue.add(key, now)
        self._changed.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            key = self._queue.take(loop.time())
            if key is None:
                await self._wait(loop.time())
                continue
            failed = False
            try:
                await self._work(key)
            except Exception as error:
                failed = True
                LOG.warning(
                    "%s: %s: %s", key, type(error).__name__, error, exc_info=not isinstance(error, OperatorError)
                )
            finally:
                self._queue.finish(key, failed, loop.time())
                self._changed.set()

    async def _wait(self, now: float) -> None:
        self._changed.clear()
        due = self._queue.next_due()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - now)):
                await self._changed.wait()
        except TimeoutError:
            return
