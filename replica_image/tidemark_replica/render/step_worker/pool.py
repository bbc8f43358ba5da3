"""The pool of a replica's step workers: processes, each with a thread that sends it waiting tickets.

    queue  t1 t2 t3 t4 ...        thread of process 1:  takes the first ticket, sends its member, settles it as its
                                                        answer comes

The pool starts no process before the first ticket, or `start`; then one process, and another when tickets have waited
for some time (`core_contention.py`). While no process can be started, tickets fail at once with `NoWorker`, and their
fragments run as Spark jobs. The pool tries again after a pause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark_replica.render.step_worker.core_contention import CoreContention
from tidemark_replica.render.step_worker.wire import StageAnswer
from tidemark_replica.render.step_worker.work_ticket import NoWorker, WorkerLost, WorkTicket
from tidemark_replica.render.step_worker.worker_process import COMMAND, WorkerGone, WorkerProcess
from tidemark_replica.retry import Backoff

if TYPE_CHECKING:
    from tidemark_replica.render.task.description import StageReport

LOG = logging.getLogger(__name__)
MEMBER_SECONDS = 10.0
GRACE_SECONDS = 0.5
MAX_ANONYMOUS_BYTES = 512 * 1024**2
_POLL_SECONDS = 0.05
_CLOSE_SECONDS = 2.0


class StepWorkers:
    """The pool. Any thread may run and cancel tickets."""

    def __init__(
        self,
        processes: int = 1,
        *,
        command: Sequence[str] = COMMAND,
        member_seconds: float = MEMBER_SECONDS,
        max_bytes: int = MAX_ANONYMOUS_BYTES,
    ) -> None:
        """`processes`: at most so many. `member_seconds`: seconds that one member may take. `max_bytes`: a process with
        more anonymous memory is replaced.
        """
        self._processes, self._command, self._member_seconds, self._max_bytes = (
            processes,
            command,
            member_seconds,
            max_bytes,
        )
        self._waiting: deque[WorkTicket] = deque()
        self._contention = CoreContention()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._backoff = Backoff()
        self.started = 0
        """The number of processes started so far."""

    def start(self) -> None:
        """Begin to start the first process. May be repeated."""
        with self._changed:
            if not self._threads and not self._closed:
                self._add_process()

    def run(self, ticket: WorkTicket) -> StageReport:
        """Run a ticket to its end, on any process. Raises StepWorkerError."""
        self.start()
        with self._changed:
            if self._closed:
                raise NoWorker("the step workers have been closed")
            if not self._threads:
                raise NoWorker("no step worker could be started")
            self._waiting.append(ticket)
            self._measure_contention(1)
            self._changed.notify()
        try:
            return ticket.wait()
        finally:
            with self._changed:
                self._measure_contention(-1)

    def close(self) -> None:
        """End all processes, whatever they run."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for ticket in self._waiting:
            ticket.fail(NoWorker("the step workers have been closed"))

    def _measure_contention(self, more: int = 0) -> None:
        """Add `more` tickets. Starts another process if one is due and the earlier ones have begun."""
        threads = len(self._threads)
        late = self._contention.look(threads, more)
        if late and threads < self._processes and threads <= self.started and not self._closed:
            self._add_process()

    def _add_process(self) -> None:
        """Start a process with a thread, if the system allows a thread now."""
        if not self._backoff.has_elapsed:
            return
        thread = threading.Thread(target=self._serve, name=f"step worker {len(self._threads) + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError as cause:
            self._backoff.failed()
            LOG.warning("a step worker's thread cannot be started now: %s", cause)
        else:
            self._threads.append(thread)

    def _serve(self) -> None:
        """The thread of one process."""
        process = self._start_process()
        while (ticket := self._take()) is not None:
            process = process or self._start_process()
            if process is None:
                ticket.fail(NoWorker("no step worker could be started"))
            elif not self._run(process, ticket):
                process = self._start_process()
            elif process.anonymous_bytes > self._max_bytes:
                LOG.info("step worker %d uses more than %d bytes: it is replaced", process.pid, self._max_bytes)
                process.kill()
                process = self._start_process()
        if process is not None:
            process.kill()

    def _start_process(self) -> WorkerProcess | None:
        """Start a process. Returns None if it cannot be started now."""
        if self._closed or not self._backoff.has_elapsed:
            return None
        try:
            process = WorkerProcess(self._command)
        except WorkerGone as gone:
            self._backoff.failed()
            LOG.warning("%s; small steps run as Spark jobs for now", gone)
            return None
        self._backoff.reset()
        self.started += 1
        with self._changed:
            self._contention.forget()
        return process

    def _take(self) -> WorkTicket | None:
        """Wait for a ticket; None once closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            return None if self._closed else self._waiting.popleft()

    def _run(self, process: WorkerProcess, ticket: WorkTicket) -> bool:
        """Run a ticket on a process. Returns whether the process can be used again."""
        if not ticket.begin():
            return True
        try:
            process.send(ticket.member)
        except WorkerGone as gone:
            process.kill()
            ticket.fail(NoWorker(str(gone)))
            return False
        try:
            ticket.settle_answer(self._answer(process, ticket))
        except WorkerGone as gone:
            process.kill()
            if not self._closed:
                LOG.warning("%s; it was running %s", gone, ticket.member.description)
            ticket.fail(WorkerLost(str(gone)))
            return False
        return True

    def _answer(self, process: WorkerProcess, running: WorkTicket) -> StageAnswer:
        """The answer. Raises WorkerGone if it does not come in time."""
        began = time.monotonic()
        while (answer := process.answer(_POLL_SECONDS)) is None:
            with self._changed:
                self._measure_contention()
            if self._closed:
                raise WorkerGone("step workers have been closed")
            if running.cancelled_for > GRACE_SECONDS:
                raise WorkerGone(f"step worker {process.pid} did not stop a cancelled member")
            if time.monotonic() - began > self._member_seconds:
                raise WorkerGone(f"step worker {process.pid} ran one member for more than {self._member_seconds} s")
        return answer
