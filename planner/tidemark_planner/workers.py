"""The planner's workers: one, and another where somebody waits while the first is at a long plan.

    who asks ─► an idle worker ─► in time?  the answer
                                  not?      it is killed, its JVM with it, and another one is started
             ─► none is idle for CROWDED_SECONDS ─► another one is started, up to so many; each that nobody needed
                                                    for IDLE_SECONDS ends, but for one

So a statement that takes too long, or too much memory, ends a process that others need not wait for. What may take more
than SHORT_SECONDS never has all of the workers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from tidemark_planner.process import TookTooLong, Worker, WorkerGone
from tidemark_planner.questions import OVER

LOG = logging.getLogger(__name__)
SHORT_SECONDS = 10.0
CROWDED_SECONDS = 1.0
IDLE_SECONDS = 600.0


class Busy(Exception):
    """All workers are at work, or start."""


class Workers:
    """For any thread. `start` begins to start one; `clock`: seconds, of any beginning."""

    def __init__(self, start: Callable[[], Worker], most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._start, self._most, self._clock = start, most, clock
        self._changed = threading.Condition()
        self._all: set[Worker] = set()
        self._idle: list[tuple[float, Worker]] = []
        self._long = 0
        self._closed = False
        self.failed = threading.Event()
        """There is none, and none could be started."""

    def begin(self) -> None:
        """Starts the first one; raises what starting one does."""
        worker = self._start()
        self._all.add(worker)
        worker.started()
        self._give_back(worker)

    def ask(self, question: bytes, seconds: float, turn_seconds: float) -> bytes:
        """The answer. Raises Busy where no worker is idle within `turn_seconds`, TookTooLong and WorkerGone."""
        long = seconds > SHORT_SECONDS
        worker = self._take(turn_seconds, long)
        useful = False
        try:
            answer = worker.ask(question, seconds)
            useful = answer[:1] != OVER
            return answer
        finally:
            if long:
                with self._changed:
                    self._long -= 1
            if useful:
                self._give_back(worker)
            else:
                self._replace(worker)

    def tidy(self) -> None:
        """Ends one that nobody needed for long."""
        with self._changed:
            if len(self._idle) < 2 or self._clock() - self._idle[0][0] < IDLE_SECONDS:
                return
            _, worker = self._idle.pop(0)
            self._all.remove(worker)
        worker.kill()

    def close(self) -> None:
        """All of them, at once."""
        with self._changed:
            self._closed = True
            workers = list(self._all)
        for worker in workers:
            worker.kill()

    def _take(self, seconds: float, long: bool) -> Worker:
        """The one that was needed last."""
        asked = self._clock()
        with self._changed:
            while not self._idle or (long and self._long >= max(1, self._most - 1)):
                waited = self._clock() - asked
                if waited >= seconds:
                    raise Busy
                crowded = waited >= CROWDED_SECONDS
                if crowded and not self._idle and len(self._all) < self._most:
                    self._another()
                self._changed.wait((seconds if crowded else min(seconds, CROWDED_SECONDS)) - waited)
            self._long += long
            return self._idle.pop()[1]

    def _give_back(self, worker: Worker) -> None:
        with self._changed:
            self._idle.append((self._clock(), worker))
            self._changed.notify_all()

    def _replace(self, worker: Worker) -> None:
        worker.kill()
        with self._changed:
            self._all.remove(worker)
            self._another()

    def _another(self) -> None:
        """Begins to start one; with the lock."""
        if self._closed:
            return
        try:
            worker = self._start()
        except OSError as error:
            self._not_started(error)
            return
        self._all.add(worker)
        threading.Thread(target=self._when_started, args=(worker,), daemon=True).start()

    def _when_started(self, worker: Worker) -> None:
        try:
            worker.started()
        except (WorkerGone, TookTooLong) as error:
            worker.kill()
            with self._changed:
                self._all.remove(worker)
                self._not_started(error)
        else:
            self._give_back(worker)

    def _not_started(self, error: Exception) -> None:
        if not self._closed:
            LOG.error("a worker of the planner could not be started: %s", error)
        if not self._all:
            self.failed.set()
