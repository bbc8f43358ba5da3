"""The planner's pool of workers: one worker, and a second one while the first is busy with a long plan.

    request ─► idle worker ─► answer in time
                          └─► timeout: the pool kills the worker with its JVM and starts another one
            ─► no worker is idle for GROW_AFTER_SECONDS ─► the pool starts another worker, up to its limit;
                                                           it ends a surplus worker after IDLE_SECONDS without use
    an idle worker ends by itself ─► the pool replaces it. A worker that ends before its first answer counts as one
                                     that cannot be started
    a worker cannot be started    ─► the pool tries again after a pause that grows (START_PAUSE_SECONDS)

A statement that takes too long, or too much memory, ends one process and fails alone: other statements go on. Long
plans (more than SHORT_PLAN_SECONDS of processor time allowed) never occupy all workers. Decision 0032 says why no
library's pool does this.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from tidemark_planner.service.worker_process import PlanLimits, Worker, WorkerEnded, WorkerTimeout
from tidemark_planner.service.worker_protocol import SPENT

LOG = logging.getLogger(__name__)
SHORT_PLAN_SECONDS = 10.0
GROW_AFTER_SECONDS = 1.0
IDLE_SECONDS = 600.0
START_PAUSE_SECONDS, MAX_START_PAUSE_SECONDS = 1.0, 30.0
"""The pause after a worker that could not be started; it doubles with each further one."""
FIRST_STARTS = 3
"""The number of failed starts in a row, before any worker could plan, that shows this machine cannot run one."""


class NoIdleWorker(Exception):
    """No worker became idle in time: all of them plan, or are starting, or cannot be started (the message then)."""


def _always() -> bool:
    return True


class WorkerPool:
    """Safe to use from any thread.

    `start`: starts a worker and returns at once. `size`: the most workers at a time. `clock`: seconds since any origin.
    `ready` is set once the first worker can plan; `failed` is set once FIRST_STARTS of them could not be started and
    none could ever plan. A pool that was ready never fails: it starts workers again for as long as it is open.
    """

    def __init__(self, start: Callable[[], Worker], size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._start, self._size, self._clock = start, size, clock
        self._changed = threading.Condition()
        self._workers: set[Worker] = set()
        self._starting: set[Worker] = set()
        self._idle: list[tuple[float, Worker]] = []
        """Idle workers, and since when; the one that was used last is the last."""
        self._long_plans = 0
        self._closed = False
        self._failed_starts, self._start_failure, self._start_again_at = 0, "", 0.0
        self.ready, self.failed = threading.Event(), threading.Event()

    def begin(self) -> None:
        """Start the first worker; returns at once."""
        with self._changed:
            self._start_worker()

    def ask(
        self, request: bytes, limits: PlanLimits, queue_seconds: float, is_wanted: Callable[[], bool] = _always
    ) -> bytes:
        """The answer of a worker to a message of worker_protocol.py.

        Raises:
            NoIdleWorker: no worker became idle within `queue_seconds`, or the caller does not want the answer any more.
            WorkerTimeout: the worker did not answer within the limits; the pool has replaced it.
            WorkerEnded: the worker ended while it planned; the pool has replaced it.
        """
        is_long = limits.cpu_seconds > SHORT_PLAN_SECONDS
        worker = self._acquire(queue_seconds, is_long, is_wanted)
        reusable = False
        try:
            answer = worker.ask(request, limits)
            reusable = answer[:1] != SPENT
            return answer
        finally:
            with self._changed:
                self._long_plans -= is_long
            if reusable:
                self._release(worker)
            else:
                self._replace(worker)

    def maintain(self) -> None:
        """Replace idle workers that have ended, end a surplus worker that was idle for IDLE_SECONDS, and start a worker
        where there is none."""
        with self._changed:
            ended = [worker for _, worker in self._idle if worker.has_ended]
            self._idle = [(since, worker) for since, worker in self._idle if worker not in ended]
            surplus = [self._idle.pop(0)[1]] if self._has_surplus() else []
        for worker in ended:
            self._replace_ended(worker)
        for worker in surplus:
            self._kill(worker)
        with self._changed:
            if not self._workers and self._may_start():
                self._start_worker()

    def close(self) -> None:
        """Kill all workers at once; the pool starts no other."""
        with self._changed:
            self._closed = True
            workers = list(self._workers)
            self._changed.notify_all()
        for worker in workers:
            worker.kill()

    def _has_surplus(self) -> bool:
        return len(self._idle) > 1 and self._clock() - self._idle[0][0] >= IDLE_SECONDS

    def _acquire(self, seconds: float, is_long: bool, is_wanted: Callable[[], bool]) -> Worker:
        """Take the idle worker that was used last; grow the pool when none is idle for GROW_AFTER_SECONDS."""
        asked_at = self._clock()
        with self._changed:
            while True:
                if self._closed or not is_wanted():
                    raise NoIdleWorker
                is_allowed = not is_long or self._long_plans < max(1, self._size - 1)
                if is_allowed and self._idle:
                    _, worker = self._idle.pop()
                    if not worker.has_ended:
                        self._long_plans += is_long
                        return worker
                    threading.Thread(target=self._replace_ended, args=(worker,), daemon=True).start()
                    continue
                waited = self._clock() - asked_at
                if waited >= seconds:
                    raise NoIdleWorker(self._start_failure)
                grows = waited >= GROW_AFTER_SECONDS
                has_room = not self._starting and len(self._workers) < self._size
                if grows and is_allowed and has_room and self._may_start():
                    self._start_worker()
                self._changed.wait((seconds if grows else min(seconds, GROW_AFTER_SECONDS)) - waited)

    def _release(self, worker: Worker) -> None:
        with self._changed:
            self._idle.append((self._clock(), worker))
            self._changed.notify_all()

    def _replace(self, worker: Worker) -> None:
        self._kill(worker)
        with self._changed:
            self._start_worker()

    def _replace_ended(self, worker: Worker) -> None:
        if worker.has_answered:
            LOG.error("a worker of the planner ended while it was idle: it is replaced")
            self._replace(worker)
        else:
            self._kill(worker)
            with self._changed:
                self._report_start_failure("it ended before its first plan")

    def _kill(self, worker: Worker) -> None:
        """Kill the worker. It counts until it has ended: only then there is memory for another one."""
        worker.kill()
        with self._changed:
            self._workers.discard(worker)
            self._starting.discard(worker)
            self._changed.notify_all()

    def _may_start(self) -> bool:
        """Whether the pause after a failed start is over."""
        return self._clock() >= self._start_again_at

    def _start_worker(self) -> None:
        """Start a worker; the caller holds the lock."""
        if self._closed:
            return
        try:
            worker = self._start()
        except OSError as error:
            self._report_start_failure(error)
            return
        self._workers.add(worker)
        self._starting.add(worker)
        threading.Thread(target=self._await_start, args=(worker,), daemon=True).start()

    def _await_start(self, worker: Worker) -> None:
        try:
            worker.await_start()
        except (WorkerEnded, WorkerTimeout) as error:
            self._kill(worker)
            with self._changed:
                self._report_start_failure(error)
        else:
            LOG.info("worker %d can plan", worker.pid)
            with self._changed:
                self._starting.discard(worker)
                self._failed_starts, self._start_failure = 0, ""
            self._release(worker)
            self.ready.set()

    def _report_start_failure(self, error: Exception | str) -> None:
        """Schedule the next attempt; the caller holds the lock."""
        if self._closed:
            return
        pause = min(START_PAUSE_SECONDS * 2**self._failed_starts, MAX_START_PAUSE_SECONDS)
        self._failed_starts += 1
        self._start_failure, self._start_again_at = str(error), self._clock() + pause
        LOG.error("a worker of the planner could not be started: %s; the next attempt is in %.0f s", error, pause)
        if self._failed_starts >= FIRST_STARTS and not self.ready.is_set():
            self.failed.set()
