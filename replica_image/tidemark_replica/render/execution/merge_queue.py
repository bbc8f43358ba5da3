"""The queue of background merges of all dataflows, which run a few at a time.

    dataflow a ──submit──> waiting: b2 c1 a7 ──> THREADS threads, which exist while merges wait
    dataflow b is dropped ──withdraw──> b2 leaves the queue

Each dataflow has at most one merge, waiting or running, so the queue is at most as long as there are dataflows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

LOG = logging.getLogger(__name__)
THREADS = 1
"""Merges at a time. A merge takes a task slot of Spark, which steps need too."""


class QueuedMerge:
    """A merge in the queue: it waits, runs, and is over; or is withdrawn, and over without having run."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        self._over.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end. Returns whether it is over."""
        return self._over.wait(timeout)


class MergeQueue:
    """The queue of a replica. Safe for any threads."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._waiting: dict[QueuedMerge, None] = {}
        self._running, self._closed = 0, False

    def submit(self, work: Callable[[], None]) -> QueuedMerge:
        """Append a merge. Returns at once; first come, first served."""
        turn = QueuedMerge(work)
        with self._lock:
            self._waiting[turn] = None
            if self._closed or (self._running < self._threads and not self._started() and not self._running):
                self._take_out(turn)
        return turn

    def withdraw(self, turn: QueuedMerge) -> None:
        """End a merge that has not begun."""
        with self._lock:
            self._take_out(turn)

    def close(self) -> None:
        """Stop: no merge begins any more. Running ones end with Spark and are not awaited."""
        with self._lock:
            self._closed = True
            for turn in list(self._waiting):
                self._take_out(turn)

    def _take_out(self, turn: QueuedMerge) -> None:
        if turn in self._waiting:
            del self._waiting[turn]
            turn.end()

    def _started(self) -> bool:
        """Start a thread. Returns whether the system allowed one."""
        try:
            threading.Thread(target=self._run, name="merges", daemon=True).start()
        except RuntimeError as cause:
            LOG.warning("the system allows no thread for merges now: %s", cause)
            return False
        self._running += 1
        return True

    def _run(self) -> None:
        while (turn := self._next()) is not None:
            try:
                turn.work()
            except BaseException:  # of any kind: other merges wait for this thread
                LOG.exception("a merge failed")
            finally:
                turn.end()

    def _next(self) -> QueuedMerge | None:
        """The merge that has waited longest; None ends the thread."""
        with self._lock:
            turn = next(iter(self._waiting), None)
            if turn is None:
                self._running -= 1
            else:
                del self._waiting[turn]
            return turn
