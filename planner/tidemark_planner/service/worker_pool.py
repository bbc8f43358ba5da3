"""The planner's workers: one, and another where somebody waits while the first is at a long plan.

    who asks ─► an idle worker ─► in time?  the answer
                                  not?      it is killed, its JVM with it, and another one is started
             ─► none is idle for CROWDED_SECONDS ─► another one is started, up to so many; each that nobody needed
                                                    for IDLE_SECONDS ends, but for one
    an idle one ends by itself ─► another one is started; one that did so before it answered anything, does not start

So a statement that takes too long, or too much memory, ends a process that others need not wait for. What may take more
than SHORT_SECONDS never has all of the workers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from tidemark_planner.service.worker_process import TookTooLong, Worker, WorkerGone
from tidemark_planner.service.worker_requests import OVER

LOG = logging.getLogger(__name__)
SHORT_SECONDS = 10.0
CROWDED_SECONDS = 1.0
IDLE_SECONDS = 600.0


class Busy(Exception):
    """All workers are at work, or start."""


def _always() -> bool:
    return True


class Workers:
    """For any thread. `start` begins to start one; `clock`: seconds, of any beginning."""

    def __init__(self, start: Callable[[], Worker], most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._start, self._most, self._clock = start, most, clock
        self._changed = threading.Condition()
        self._all: set[Worker] = set()
        self._starting: set[Worker] = set()
        self._idle: list[tuple[float, Worker]] = []
        self._long = 0
        self._closed = False
        self.ready, self.failed = threading.Event(), threading.Event()
        """The first one has started. There is none, and none could be started."""

    def begin(self) -> None:
        """Begins to start the first one."""
        with self._changed:
            self._another()

    def ask(self, question: bytes, seconds: float, turn_seconds: float, wanted: Callable[[], bool] = _always) -> bytes:
        """The answer. Raises TookTooLong and WorkerGone, and Busy where no worker is idle within `turn_seconds`, or
        the answer is not `wanted` any more when one is."""
        long = seconds > SHORT_SECONDS
        worker = self._take(turn_seconds, long, wanted)
        useful = False
        try:
            answer = worker.ask(question, seconds)
            useful = answer[:1] != OVER
            return answer
        finally:
            with self._changed:
                self._long -= long
            if useful:
                self._give_back(worker)
            else:
                self._replace(worker)

    def tidy(self) -> None:
        """Replaces those that ended while nobody asked them, and ends one that nobody needed for long."""
        with self._changed:
            lost = [worker for _, worker in self._idle if worker.has_ended]
            self._idle = [(since, worker) for since, worker in self._idle if worker not in lost]
            over = [self._idle.pop(0)[1]] if self._has_one_too_many() else []
        for worker in lost:
            self._lost(worker)
        for worker in over:
            self._end(worker)

    def close(self) -> None:
        """All of them, at once."""
        with self._changed:
            self._closed = True
            workers = list(self._all)
            self._changed.notify_all()
        for worker in workers:
            worker.kill()

    def _has_one_too_many(self) -> bool:
        return len(self._idle) > 1 and self._clock() - self._idle[0][0] >= IDLE_SECONDS

    def _take(self, seconds: float, long: bool, wanted: Callable[[], bool]) -> Worker:
        """The one that was needed last."""
        asked = self._clock()
        with self._changed:
            while True:
                if self._closed or not wanted():
                    raise Busy
                may = not long or self._long < max(1, self._most - 1)
                if may and self._idle:
                    _, worker = self._idle.pop()
                    if not worker.has_ended:
                        self._long += long
                        return worker
                    threading.Thread(target=self._lost, args=(worker,), daemon=True).start()
                    continue
                waited = self._clock() - asked
                if waited >= seconds:
                    raise Busy
                crowded = waited >= CROWDED_SECONDS
                if crowded and may and not self._starting and len(self._all) < self._most:
                    self._another()
                self._changed.wait((seconds if crowded else min(seconds, CROWDED_SECONDS)) - waited)

    def _give_back(self, worker: Worker) -> None:
        with self._changed:
            self._idle.append((self._clock(), worker))
            self._changed.notify_all()

    def _replace(self, worker: Worker) -> None:
        self._end(worker)
        with self._changed:
            self._another()

    def _lost(self, worker: Worker) -> None:
        if worker.has_answered:
            LOG.error("a worker of the planner ended while it was asked nothing: it is replaced")
            self._replace(worker)
        else:
            self._end(worker)
            with self._changed:
                self._not_started("it ended before it was asked anything")

    def _end(self, worker: Worker) -> None:
        """It counts until it is gone: only then there is room for another."""
        worker.kill()
        with self._changed:
            self._all.discard(worker)
            self._starting.discard(worker)
            self._changed.notify_all()

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
        self._starting.add(worker)
        threading.Thread(target=self._when_started, args=(worker,), daemon=True).start()

    def _when_started(self, worker: Worker) -> None:
        try:
            worker.started()
        except (WorkerGone, TookTooLong) as error:
            self._end(worker)
            with self._changed:
                self._not_started(error)
        else:
            with self._changed:
                self._starting.discard(worker)
            self._give_back(worker)
            self.ready.set()

    def _not_started(self, error: Exception | str) -> None:
        if not self._closed:
            LOG.error("a worker of the planner could not be started: %s", error)
        if not self._all:
            self.failed.set()
