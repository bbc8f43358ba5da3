"""Tickets: a member's way through the pool. Its dataflow's thread waits for it while another thread sends it.

    waiting ──> running ──> settled: done, failed, lost, cancelled
      └── cancelled: settled at once; the worker will find no description

A ticket that is cancelled while it runs is settled when the worker has stopped it, so that its files can be deleted.
"""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark_replica.errors import ReplicaError
from tidemark_replica.render.step_worker.wire import StageAnswer, StageRequest

if TYPE_CHECKING:
    from tidemark_replica.render.task.description import StageReport

# above the numbers of Spark's task attempts
_NUMBERS = itertools.count(1 << 40)
UNSAID = "no reason was given"


class StepWorkerError(ReplicaError):
    """The root of a ticket's errors."""


class MemberFailed(StepWorkerError):
    """The stage raised an error. The message is for the log; `public_text` is the part that every user may see."""

    def __init__(self, error: str, public_text: str) -> None:
        super().__init__(error)
        self.public_text = public_text


class MemberCancelled(StepWorkerError):
    """The ticket was cancelled."""


class WorkerLost(StepWorkerError):
    """The process ended, or was killed, while it ran the member. Files of the member do not count."""


class NoWorker(StepWorkerError):
    """No process could be started. The member has not run."""


@dataclass(frozen=True)
class PickledStage:
    """A stage's tree, pickled once."""

    stage: str
    key: str
    tree: bytes


class WorkTicket:
    """One attempt of one stage."""

    def __init__(self, sent: PickledStage, description: Path) -> None:
        self.member = StageRequest(next(_NUMBERS), sent.stage, str(description), sent.key, sent.tree)
        self._description = description
        self._settled: Future[StageReport] = Future()
        self._lock = threading.Lock()
        self._running = False
        self._cancelled_at: float | None = None

    def wait(self) -> StageReport:
        """Wait until the ticket is settled. Returns the report, or raises a StepWorkerError."""
        return self._settled.result()

    def cancel(self) -> None:
        """Cancel the ticket. Returns at once."""
        with self._lock:
            if self._cancelled_at is None:
                self._cancelled_at = time.monotonic()
                self._description.unlink(missing_ok=True)
                if not self._running:
                    self._settle(MemberCancelled("it was cancelled before it began"))

    def begin(self) -> bool:
        """Note that a worker runs the member now. Returns False if the ticket was cancelled before."""
        with self._lock:
            self._running = self._cancelled_at is None
            return self._running

    @property
    def cancelled_for(self) -> float:
        """Seconds since the cancellation; 0 if it is not cancelled."""
        at = self._cancelled_at
        return 0.0 if at is None else time.monotonic() - at

    def settle_answer(self, answer: StageAnswer) -> None:
        """Settle the ticket by the worker's answer."""
        with self._lock:
            if self._cancelled_at is not None:
                self._settle(MemberCancelled("it was cancelled"))
            else:
                self._settle(answer.report or MemberFailed(answer.error or UNSAID, answer.public_text or UNSAID))

    def fail(self, error: StepWorkerError) -> None:
        """Settle the ticket without an answer."""
        with self._lock:
            self._settle(error if self._cancelled_at is None else MemberCancelled("it was cancelled"))

    def _settle(self, outcome: StageReport | StepWorkerError) -> None:
        if self._settled.done():
            return
        if isinstance(outcome, StepWorkerError):
            self._settled.set_exception(outcome)
        else:
            self._settled.set_result(outcome)
