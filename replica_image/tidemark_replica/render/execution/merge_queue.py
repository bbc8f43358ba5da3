"""Large merges of all dataflows, so many at a time: those that are due wait in a queue, not on threads.

    dataflow a ──submit──> waiting: b2 c1 a7 ──> THREADS threads, which are there while something waits
    dataflow b is dropped ──withdraw──> b2 is out of it

Each dataflow has one merge at most, here or under way, so the queue is as long as there are dataflows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

LOG = logging.getLogger(__name__)
THREADS = 1
"""A merge takes a task of Spark's, which steps want too."""


class QueuedMerge:
    """One merge's: it waits, is carried out, and is over; or is over at once, and was not carried out."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        self._over.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is over by then."""
        return self._over.wait(timeout)


class MergeQueue:
    """One per replica; for any threads."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._waiting: dict[QueuedMerge, None] = {}
        self._running, self._closed = 0, False

    def submit(self, work: Callable[[], None]) -> QueuedMerge:
        """Returns at once; first come, first served."""
        turn = QueuedMerge(work)
        with self._lock:
            self._waiting[turn] = None
            if self._closed or (self._running < self._threads and not self._started() and not self._running):
                self._take_out(turn)
        return turn

    def withdraw(self, turn: QueuedMerge) -> None:
        """If it has not begun it never will, and is over."""
        with self._lock:
            self._take_out(turn)

    def close(self) -> None:
        """Nothing begins any more. What is under way ends with Spark, and is not waited for."""
        with self._lock:
            self._closed = True
            for turn in list(self._waiting):
                self._take_out(turn)

    def _take_out(self, turn: QueuedMerge) -> None:
        if turn in self._waiting:
            del self._waiting[turn]
            turn.end()

    def _started(self) -> bool:
        """Whether there is one more thread."""
        try:
            threading.Thread(target=self._run, name="merges", daemon=True).start()
        except RuntimeError as cause:
            LOG.warning("no thread for merges can be started now: %s", cause)
            return False
        self._running += 1
        return True

    def _run(self) -> None:
        while (turn := self._next()) is not None:
            try:
                turn.work()
            except BaseException:  # whatever it was: others wait for this thread
                LOG.exception("a merge failed")
            finally:
                turn.end()

    def _next(self) -> QueuedMerge | None:
        """What has waited longest; None: the thread ends."""
        with self._lock:
            turn = next(iter(self._waiting), None)
            if turn is None:
                self._running -= 1
            else:
                del self._waiting[turn]
            return turn
